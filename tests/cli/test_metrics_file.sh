#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_metrics_file.sh SOURCE_DIR BUILD_DIR -- metrics.jsonl has the keys that
# docs/reference/metrics-files.md describes, and report --csv prints its numbers.
source "$(dirname "$0")/support.sh"
build_dir=$(dirname "$program")

page=$source_dir/docs/reference/metrics-files.md
tiny=gpt2:layers=1,width=8,heads=2,vocab=256,seq=8
# Print the keys of the page, and those whose column "in the line if" is "always".
documented() { sed -n '/^| key /,/^$/p' "$page" | grep '^| `' | cut -d'|' -f2 | grep -o '`[a-z0-9_]*`' | tr -d '`' | sort; }
always() { sed -n '/^| key /,/^$/p' "$page" | grep '| always |$' | grep -o '^| `[a-z]*`' | tr -d '|` ' | sort; }
keys_of() { jq -r 'keys[]' "$@" | sort -u; }

run train $tiny --data text.txt --batch 2 --chunks 1 --steps 5 --run text --clip 1 --evaluate-every 2 --digest-every 3
check "text" exits 0
run train resnet:depth=8,classes=10,image=16,width=4 --data shapes:size=16,validation=8 --batch 2 --chunks 1 --steps 2 --evaluate-every 2 --run labels
check "labels" exits 0
run train unet:B=1,C=4,depth=1,image=16 --data shapes:size=16,masks=1,validation=8 --batch 2 --chunks 1 --steps 2 --evaluate-every 2 --run masks
check "masks" exits 0
cc -std=gnu11 -fPIC -shared -I"$source_dir/include" -I"$source_dir/tests/support" -o mine.so "$source_dir/tests/support/model_plugin.c" \
    -L"$build_dir" -lcgpipe_data -lcgpipe -lm
run train ./mine.so:layers=2 --data plugin --batch 16 --steps 2 --run mine
check "a model of one's own" exits 0
for name in text labels masks mine; do
    check "$name: each line has the keys that are always there" test -z "$(always | while read -r key; do jq -r "select(has(\"$key\") | not)" $name/metrics.jsonl; done)"
done
check "the page has keys" test "$(documented | wc -l)" -ge 12
check "the runs have the keys of the page, and no others" diff <(documented) <(keys_of {text,labels,masks,mine}/metrics.jsonl)
check "step is the first" test "$(grep -c '^{"step":[1-9]' text/metrics.jsonl)" = 5
lines_with() { jq -c "select(has(\"$1\")) | .step" text/metrics.jsonl | xargs; }
check "validation where it is due" test "$(lines_with validation_loss)" = "2 4 5"
check "digests where they are due" test "$(lines_with digest)" = 3
check "norms with --clip alone" test "$(lines_with gradient_norm) $(jq 'has("gradient_norm")' labels/metrics.jsonl | sort -u)" = "1 2 3 4 5 false"
check "shares are at most 1" test "$(jq -s 'map(.bubble, .top1, .top5, .iou | select(. != null) | . >= 0 and . <= 1) | all' {text,labels,masks}/metrics.jsonl)" = true

# --- CSV ---

cat >table.py <<'PYTHON'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
lines = [json.loads(line) for line in open(sys.argv[2])]
assert len(rows) == len(lines), "rows"
for row, line in zip(rows, lines):
    assert set(line) <= set(row), "keys"
    for key, cell in row.items():
        value = line.get(key, "")
        assert (cell == "nan" if value is None else cell == value if isinstance(value, str) else float(cell) == value), (key, cell, value)

PYTHON
for name in text labels masks mine; do
    run report $name --csv
    check "$name: CSV" exits 0
    cp "$out" $name.csv
    check "$name: with the numbers of metrics.jsonl" python3 table.py $name.csv $name/metrics.jsonl
    check "$name: and no page" test "$(stat -c %Y $name/report.html)" -le "$(stat -c %Y $name.csv)" -a -z "$(cat "$err")"
done
check "columns are in the order of keys" test "$(head -n 1 text.csv)" = "step,loss,lr,gradient_norm,seconds,tokens_per_second,bubble,validation_loss,digest"
cp -r text changed
printf '{"step":6,"loss":null,"note":"a \\"b\\", c"}\nnot json\n{"step":2}\n{"step":7,"lo' >>changed/metrics.jsonl
run report changed --csv
check "a null is nan, a text is quoted" test "$(tail -n 1 "$out")" = '6,nan,,,,,,,,"a ""b"", c"'
check "other lines are left out" test "$(wc -l <"$out")" = 7
check "with a warning" has "cgpipe: warning: changed/metrics.jsonl: 2 of 8 lines cannot be used (left out)" "$err"
cp -r "$source_dir/tests/data/run-0.1/run" old
run report old --csv
check "a run of 0.1.0: rate is lr" test "$code $(head -n 1 "$out" | cut -d, -f1-3)" = "0 step,loss,lr"
run report text --csv --out page.html --json page.json
check "with a page and JSON, too" test "$code$(wc -l <"$out")$(ls page.html page.json | wc -l)" = 062
: >changed/metrics.jsonl
fails 1 "changed/metrics.jsonl: has no step yet" report changed --csv
rm changed/metrics.jsonl
fails 1 "changed/metrics.jsonl: no such file (the run has no step yet)" report changed --csv
fails 2 "report: --csv and --text both go to standard output (leave out one)" report text --csv --text
fails 2 "report: --csv and --json - both go to standard output (leave out one)" report text --csv --json -
fails 2 "report: --csv prints the metrics of one run, got labels too" report text labels --csv
fails 1 "run directory nowhere: no such directory" report nowhere --csv
finish
