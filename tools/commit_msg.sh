#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# commit_msg.sh FILE -- refuse a commit whose subject is not `module: imperative summary`: at most
# 72 columns, one subject, a first word in the imperative. `make dev` installs it as git's hook
# commit-msg.
set -u
subject=$(sed -n '/^#/!{p;q}' "$1")
refuse() { # EXPECTED
    echo "commit-msg: expected $1, got: $subject" >&2
    echo "commit-msg: the rules are in CONTRIBUTING.md, \"Commits\"" >&2
    exit 1
}
case $subject in 'Merge '* | 'Revert '* | 'fixup! '* | 'squash! '*) exit 0 ;; esac
[[ $subject =~ ^[a-z0-9_./,\ -]+:\ [^\ ] ]] || refuse '`module: imperative summary`'
[ ${#subject} -le 72 ] || refuse "at most 72 columns (it has ${#subject})"
[[ $subject != *';'* ]] || refuse 'one subject without ";" (make two commits)'
summary=${subject#*: }
word=${summary%% *}
case ${word,,} in
bring | string | ring | wing | need | feed | seed | speed | embed | shed | bias | focus | canvas) ;;
*ss) ;;
*s | *ed | *ing) refuse "an imperative first (\"add\", not \"adds\", \"added\" or \"adding\")" ;;
esac
