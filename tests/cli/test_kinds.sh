#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_kinds.sh SOURCE_DIR BUILD_DIR -- --data refuses files that are neither text nor tokens. The
# message names the kind of file and the right command. No model is trained on such a file by
# mistake, and the program leaves no file.
source "$(dirname "$0")/support.sh"

train="train $model --batch 4 --steps 1 --run none --data"
tokens="train gpt2:layers=1,width=8,heads=2,vocab=2257,seq=16 --batch 4 --steps 1 --run none --data"
bytes() { printf '%b' "$1"; cat text.txt; }

# --- archives, arrays and other files, as text and as tokens ---

refused() { # NAME KIND FIX BYTES...
    local name=$1 kind=$2 way=$3
    bytes "$4" >"$name"
    fails 1 "$name: is $kind, expected text ($way)" $train "$name"
    cp "$name" "$name.bin"
    fails 1 "$name.bin: is $kind, expected tokens (${way%%"$name"*}$name.bin..." $tokens "$name.bin"
}
refused a.npy "a NumPy array" "python3 -c \"import numpy; numpy.load('a.npy').astype('uint16').tofile('tokens.bin')\" makes a token file of an array of tokens" \
    '\x93NUMPY\x01\0'
refused a.gz "compressed by gzip" "gunzip -c a.gz >text.txt" '\x1f\x8b\x08\0\0\0\0\0\0\x03'
refused a.xz "compressed by xz" "unxz -c a.xz >text.txt" '\xfd7zXZ\0'
refused a.zst "compressed by zstd" "zstd -dc a.zst >text.txt" '\x28\xb5\x2f\xfd'
refused a.bz2 "compressed by bzip2" "bunzip2 -c a.bz2 >text.txt" 'BZh91AY&SY'
refused a.zip "a zip archive" "unzip a.zip, then its files" 'PK\x03\x04\x14\0'
refused a.7z "a 7z archive" "7z x a.7z, then its files" '7z\xbc\xaf\x27\x1c'
refused a.parquet "a Parquet file" "python3 -c \"import pandas; print(pandas.read_parquet('a.parquet')['text'].str.cat(sep='\\n'))\" >text.txt writes a column of texts" \
    'PAR1\x15\0'
refused a.safetensors "a safetensors file of weights" "cgpipe sample RUN --weights a.safetensors" '\x40\0\0\0\0\0\0\0{"__metadata__":{}}'
refused a.h5 "an HDF5 file" "another file than a.h5" '\x89HDF\r\n\x1a\n'
refused a.png "an image" "--data images:DIR instead of a.png" '\x89PNG\r\n\x1a\n'
refused a.pkl "a Python pickle" "another file than a.pkl, as nanoGPT's train.bin beside a meta.pkl" '\x80\x04\x95\x10\0\0\0\0\0\0\0'
bytes '\x80\x02}q\0' >old.pkl
fails 1 "old.pkl: is a Python pickle, expected text (another file than old.pkl)" $train old.pkl
tar -cf a.tar text.txt
fails 1 "a.tar: is a tar archive, expected text (tar -xf a.tar, then its files)" $train a.tar
for damage in 3 100; do # truncated archives are refused too
    gzip -c text.txt | head -c $damage >cut.gz
    fails 1 "cut.gz: is compressed by gzip, ..." $train cut.gz
done
fails 1 "a.gz: is compressed by gzip, ..." $train text.txt --validation a.gz
mkdir mixed && cp text.txt a.gz mixed
fails 1 "mixed/a.gz: is compressed by gzip, ..." $train mixed

use="--tokenizer $source_dir/tests/data/tokenizer"
fails 1 "a.gz: is compressed by gzip, expected text (gunzip -c a.gz >text.txt)" tokenize $use --out a.bin a.gz
fails 1 "a.npy: is a NumPy array, ..." tokenize $use a.npy

# --- texts in other encodings ---

iconv -f UTF-8 -t UTF-16 text.txt >wide.txt
fails 1 "wide.txt: is text in UTF-16, expected UTF-8 (iconv -f UTF-16 -t UTF-8 wide.txt >text.txt; tokens have a name that ends in .bin)" $train wide.txt
iconv -f UTF-8 -t UTF-16BE text.txt >wide.txt
fails 1 "wide.txt: is UTF-16 or tokens of 2 bytes by its zeros, expected UTF-8 ..." $train wide.txt
iconv -f UTF-8 -t UTF-32LE text.txt >wide.txt
fails 1 "wide.txt: is tokens of 4 bytes or UTF-32 by its zeros, expected text ..." $train wide.txt
{ head -c 300 text.txt; head -c 300 /dev/zero; cat text.txt; } >zeros.txt
run $train zeros.txt --run zeros
check "a text with zeros is one" exits 0

# --- tokens ---

cp text.txt book.bin
fails 1 "book.bin: is text, expected tokens (cgpipe tokenize --tokenizer PATH --out tokens.bin book.bin, or without .bin at its end, as bytes)" $tokens book.bin
numbers() { awk -v n="$1" 'BEGIN { for (i = 0; i < 500; i++) { v = (i * 7919 + 13) % n; printf "\\x%02x\\x%02x", v % 256, int(v / 256) % 256;
    if (n < 70000) printf "%s", ARGV[1]; else printf "\\x%02x\\0", int(v / 65536) } }' "$2"; }
printf '%b' "$(numbers 2000 '')" >narrow.bin
run $tokens narrow.bin --run run
check "tokens of 2 bytes are some" exits 0
for width in 4 8; do
    printf '%b' "$(numbers 2000 "$([ $width = 4 ] && printf '\\0\\0' || printf '\\0\\0\\0\\0\\0\\0')")" >wide.bin
    fails 1 "wide.bin: is tokens of 4 bytes or more by its zeros, expected tokens of 2 bytes, or llm.c's header (python3 -c \"import numpy; ..." $train wide.bin
done
printf '%b' "$(numbers 128256 x)" >wide.bin
fails 1 "wide.bin: is tokens of 4 bytes or more by its zeros, ..." train gpt2:layers=1,width=8,heads=2,vocab=128256,seq=16 --steps 1 --run none --data wide.bin
printf '\x88\xd8\x34\x01\x01\0\0\0' | cat - narrow.bin >shard.dat
fails 1 "shard.dat: is a token file of llm.c, expected text (--data shard.dat, renamed to end in .bin)" $train shard.dat

# A directory that nanoGPT prepared contains text and tokens, so it is refused.
mkdir -p char && cp narrow.bin char/train.bin && cp narrow.bin char/val.bin && cp a.pkl char/meta.pkl && cp text.txt char/input.txt
fails 1 "char/train.bin: is a token file by its name, expected text in a directory (--data char/train.bin --validation char/val.bin)" $train char

# --- a model whose tokens are not bytes ---

fails 2 "--data text.txt: is text, whose vocabulary is 256 bytes, expected tokens for gpt2, vocab=2257 (--tokenizer PATH makes them; or vocab=256 in MODEL)" \
    $tokens text.txt
fails 2 "--sample: prints bytes, and --data narrow.bin are tokens (--tokenizer PATH, or leave it out)" $tokens narrow.bin --sample 10
fails 2 "sample: --tokenizer PATH is missing (the tokenizer of the run's data, $PWD/narrow.bin)" sample run
run train gpt2:layers=1,width=8,heads=2,vocab=2257,seq=16 --data random --steps 1 --run random
fails 2 "sample: --tokenizer PATH is missing (vocab=2257 of gpt2 is not a vocabulary of bytes)" sample random

# --- paths ---

e=$(printf 'caf\351.txt')
cp text.txt "$e"
fails 2 '--data: expected UTF-8, which run.json keeps, got "caf\xe9.txt"' $train "$e"
fails 2 '--validation: expected UTF-8, which run.json keeps, got "caf\xe9.txt"' $train text.txt --validation "$e"
fails 2 '--prompt: expected UTF-8, which run.json keeps, got "\xe9"' $train text.txt --prompt "$(printf '\351')" --sample 1
ln -s "$e" link.txt
fails 2 'link.txt: expected a path in UTF-8, which run.json keeps, got "'"$PWD"'/caf\xe9.txt"' $train link.txt
mkdir directory.bin
fails 1 "directory.bin: is a directory, expected a file of tokens" $tokens directory.bin
for path in /dev/zero /dev/null; do
    fails 1 "$path: is not a regular file (pipes and devices have no length)" $train $path
done
mkfifo pipe
fails 1 "pipe: is not a regular file (pipes and devices have no length)" $train pipe
fails 1 "empty.txt: is empty ..." $train empty.txt

finish
