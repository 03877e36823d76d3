# SPDX-License-Identifier: Apache-2.0
# arguments.awk -- makes C functions that call each function of the public headers. Each call passes
# NULL for one pointer of the function:
#
#     awk -f arguments.awk arguments.txt exports.txt exports_data.txt include/cgpipe/base.h ... \
#         > argument_calls.h
#
# arguments.txt has an expression for each type of parameter, expressions for single parameters, and
# the pointers that may be NULL. It is an error if an exported function is in no header, or if a
# function in a header is not exported. It is also an error if a type has no expression, or if a
# line of arguments.txt is unused.
function complain(text) {
    print "arguments.awk: " text > "/dev/stderr"
    failed = 1
}
function trimmed(text) {
    gsub(/[ \t\n]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return text
}
# Return the text of a header without its comments.
function plain(text,    out, at) {
    while ((at = index(text, "/*")) > 0) {
        out = out substr(text, 1, at - 1) " "
        text = substr(text, at + 2)
        text = substr(text, index(text, "*/") + 2)
    }
    return out text
}
function expression(name, type, parameter, k) {
    if ((name SUBSEP parameter) in own) {
        used[name " " parameter] = 1
        return own[name, parameter]
    }
    if (type in of_type) {
        used[type] = 1
        return of_type[type]
    }
    if (type ~ /\*$/ && type !~ /^const /) return "capacity(f, " k ")"
    complain(name ": " parameter ": arguments.txt has no value of type " type)
    return "0"
}
# Print a C function that calls the function of a prototype such as `T name(T a, T b)`.
function prototype(text,    open, head, name, result, list, n, parts, k, part, type, parameter, calls) {
    gsub(/CGP_API|CGP_MUST_CHECK|static inline|CGP_PRINTF\([^)]*\)/, "", text)
    text = trimmed(text)
    open = index(text, "(")
    head = trimmed(substr(text, 1, open - 1))
    match(head, /[A-Za-z0-9_]+$/)
    name = substr(head, RSTART)
    result = trimmed(substr(head, 1, RSTART - 1))
    list = substr(text, open + 1)
    sub(/\)[^)]*$/, "", list)
    n = split(list, parts, ",")
    last_name = name
    calls = ""
    runs = 0
    printf "static void call_%s(frame *f) {\n", name
    for (k = 1; k <= n; k++) {
        part = trimmed(parts[k])
        if (part == "void" || part == "..." || part == "") continue
        array = part ~ /\]$/
        sub(/\[[^\]]*\]$/, "", part)
        match(part, /[A-Za-z0-9_]+$/)
        parameter = substr(part, RSTART)
        if (part ~ /cgp_pipeline \*[a-z]/) runs = 1
        type = trimmed(substr(part, 1, RSTART - 1)) (array ? " *" : "")
        value = expression(name, type, parameter, k - 1)
        gsub(/\* /, "*", type)
        if (type ~ /\*$/ && !(name in unchecked)) {
            printf "    %s a%d = f->missing == %d ? NULL : %s;\n", type, k, k - 1, value
            accepted = (name SUBSEP parameter) in free_of
            cases = cases sprintf("    {\"%s\", \"%s\", %d, call_%s, %d, %s, \"%s\"},\n", name, parameter, k - 1, name,
                                  accepted, accepted ? free_of[name, parameter] : "CGP_EINVAL", result)
            if (accepted) used["null " name " " parameter] = 1
        } else {
            printf "    %s a%d = %s;\n", type, k, value
        }
        calls = calls (calls == "" ? "" : ", ") "a" k
    }
    printf "    ready(f);\n"
    if (result == "void")
        printf "    %s(%s);\n", name, calls
    else if (result == "cgp_status")
        printf "    f->status = %s(%s);\n", name, calls
    else
        printf "    %s r = %s(%s);\n    f->nothing = NOTHING(r);\n", result, name, calls
    printf "    (void)f;\n}\n\n"
    cases = cases sprintf("    {\"%s\", NULL, -1, call_%s, 0, %s, \"%s\"},\n", name, name,
                          name in base ? base[name] : "CGP_OK", result)
    if (runs)
        cases = cases sprintf("    {\"%s\", \"fork\", FORKED, call_%s, 0, CGP_ESTATE, \"%s\"},\n", name, name, result)
    if (name in base) used["base " name] = 1
    if (name in unchecked) used["unchecked " name] = 1
}
FNR == 1 { file++ }
file == 1 && (/^#/ || /^$/) { next }
file == 1 {
    at = index($0, " = ")
    left = trimmed(at ? substr($0, 1, at - 1) : $0)
    right = trimmed(substr($0, at + 3))
    split(left, word, " ")
    if (word[1] == "type") { sub(/^type /, "", left); of_type[left] = right; lines[left] = 1 }
    else if (word[1] == "arg") { own[word[2], word[3]] = right; lines[word[2] " " word[3]] = 1 }
    else if (word[1] == "null") { free_of[word[2], word[3]] = at ? right : "CGP_OK"; lines["null " word[2] " " word[3]] = 1 }
    else if (word[1] == "base") { base[word[2]] = right; lines["base " word[2]] = 1 }
    else if (word[1] == "unchecked") { unchecked[word[2]] = 1; lines["unchecked " word[2]] = 1 }
    else complain("arguments.txt: " $0)
    next
}
file == 2 || file == 3 { exported[$1] = 1; next }
continues || /^[ \t]*#/ { continues = /\\$/; next } # skip directives, which may have several lines
{ text = text $0 "\n" }
END {
    text = plain(text)
    while (match(text, /CGP_API|static inline/)) {
        declared = substr(text, RSTART, RLENGTH) == "CGP_API"
        text = substr(text, RSTART)
        end = index(text, declared ? ";" : "{")
        whole = substr(text, 1, end - 1)
        text = substr(text, end)
        prototype(whole)
        if (declared) {
            public[last_name] = 1
            if (last_name in unchecked) complain("arguments.txt: unchecked " last_name ": is no inline function")
        }
    }
    print "static const call_case cases[] = {\n" cases "};"
    for (name in exported) if (!(name in public)) complain(name ": is exported and in no header")
    for (name in public) if (!(name in exported)) complain(name ": is in a header and not exported")
    for (line in lines) if (!(line in used)) complain("arguments.txt: " line ": belongs to nothing")
    exit failed
}
