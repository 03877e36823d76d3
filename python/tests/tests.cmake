# SPDX-License-Identifier: Apache-2.0
# Each python/tests/test_*.py is a CTest test python_* that uses the shared library of the build. A
# test is skipped (exit code 77) without NumPy, or if it needs PyTorch and there is no PyTorch.
# tools/python.sh runs the tests on the installed package instead.
find_program(CGP_PYTHON NAMES /usr/bin/python3 python3 DOC "Python of the tests; its NumPy and PyTorch are used where there are any")
if(CGP_PYTHON AND NOT CGP_SANITIZE) # the interpreter is not built with a sanitizer
  set(PYTHON_TESTS ${PROJECT_SOURCE_DIR}/python/tests)
  math(EXPR PYTHON_SECONDS "900 * ${CGP_TEST_PATIENCE}")
  file(GLOB PYTHON_FILES CONFIGURE_DEPENDS ${PYTHON_TESTS}/test_*.py)
  foreach(file ${PYTHON_FILES})
    get_filename_component(name ${file} NAME_WE)
    string(REGEX REPLACE "^test_" "python_" name ${name})
    add_test(NAME ${name} COMMAND ${CGP_PYTHON} ${file})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${PYTHON_SECONDS} LABELS python
      ENVIRONMENT "PYTHONPATH=${PROJECT_SOURCE_DIR}/python;PYTHONDONTWRITEBYTECODE=1;CGPIPE_LIBRARY=$<TARGET_FILE:cgpipe>;CC=${CMAKE_C_COMPILER}")
  endforeach()
endif()
