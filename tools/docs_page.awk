# SPDX-License-Identifier: Apache-2.0
# docs_page.awk -- convert a page of docs/ for doxygen: headings get the names that links use, and
# links to other pages become text.
/^```/ { code = !code }
!code && /^#/ {
    name = tolower($0)
    sub(/^#+ /, "", name)
    gsub(/[^a-z0-9 _-]/, "", name)
    gsub(/ /, "-", name)
    if (name ~ /^[a-z]/) # doxygen accepts only anchors that begin with a letter
        $0 = $0 " {#" name "}"
}
!code {
    while (match($0, /\]\([^)#]+\.md(#[^)]*)?\)/)) {
        end = RSTART + RLENGTH
        for (begin = RSTART; begin > 0 && substr($0, begin, 1) != "["; begin--);
        if (begin > 0)
            $0 = substr($0, 1, begin - 1) substr($0, begin + 1, RSTART - begin - 1) substr($0, end)
        else # the link's text begins on an earlier line
            $0 = substr($0, 1, RSTART) substr($0, end)
    }
}
{ print }
