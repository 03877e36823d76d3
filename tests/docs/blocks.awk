# SPDX-License-Identifier: Apache-2.0
# blocks.awk -- print the code of a Markdown page in order, one record per line:
#
#     command LINE    a command in a ```sh block, with continuation lines joined
#     prompt LINE     the text after `$ ` in a ```console block or an indented block
#     output LINE     a line after a prompt, up to the next prompt
#     line LINE       any other line of an indented block, which may be a command
#     file LINE       a line of a ```cmake block
#     c LINE          a line of a ```c block
#     span TEXT       text between backticks, with line breaks as spaces
#     end             marks the end of a block
function flush_spans(    parts, n, i) {
    n = split(text, parts, "`")
    for (i = 2; i <= n; i += 2)
        if (parts[i] != "")
            print "span " parts[i]
    text = ""
}
function emit(kind, line) {
    if (kept != "") {
        line = kept line
        kept = ""
    }
    if ((kind == "command" || kind == "line" || kind == "prompt") && line ~ /\\$/) {
        kept = substr(line, 1, length(line) - 1)
        kept_kind = kind
        return
    }
    print kind " " line
}
function block_line(line) {
    if (kept != "") {
        sub(/^ +/, "", line)
        emit(kept_kind, line)
    } else if ((kind == "line" || kind == "console") && line ~ /^\$ /) {
        prompted = 1
        emit("prompt", substr(line, 3))
    } else if (prompted)
        emit("output", line)
    else if (line !~ /^ *(#.*)?$/ || kind == "c" || kind == "file")
        emit(kind, line)
}
function close_block() {
    if (kind != "" && kind != "text")
        print "end"
    kind = ""
    prompted = 0
}
/^```/ {
    if (fenced) {
        close_block()
        fenced = 0
    } else {
        flush_spans()
        close_block()
        fenced = 1
        word = substr($0, 4)
        kind = word == "sh" ? "command" : word == "cmake" ? "file" : word == "c" || word == "console" ? word : "text"
        if (kind == "text" && word != "text" && word != "python") # python/tests/test_tutorial.py runs python
            print "unknown " word
    }
    blank = 0
    next
}
fenced {
    if (kind != "text")
        block_line($0)
    next
}
/^    / && (blank || kind == "line") {
    if (kind == "") {
        flush_spans()
        kind = "line"
    }
    for (; blank_lines > 0; blank_lines--)
        if (prompted)
            print "output "
    block_line(substr($0, 5))
    next
}
/^ *$/ {
    blank = 1
    if (kind == "line")
        blank_lines++
    else
        flush_spans()
    next
}
{
    close_block()
    blank = blank_lines = 0
    text = text " " $0
    if ($0 ~ /^(\||#|- )/) # a row, a heading or a list item ends a span
        flush_spans()
}
END {
    flush_spans()
    close_block()
}
