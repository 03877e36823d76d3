/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h -- text to tokens and back: byte-level byte-pair encoding, from a tokenizer.json of
 *Hugging Face's tokenizers
 * (GPT-2, Llama 3, Qwen2 and their like), or from GPT-2's files vocab.json and merges.txt.
 *
 *     "It's 7 a.m."      bytes
 *     It|'s| 7| a|.|m|.  pre-tokenization: words by GPT-2's pattern: letters, numbers or others, with one space before
 *     I t -> It          merges: in each word, of all pairs of neighbours the first one of the merges
 *     and each token has an id: the vocabulary
 *
 * Every byte has a token of its own, so every sequence of bytes has tokens, and decoding them
 * returns it.
 *
 * Threads: a tokenizer belongs to one thread at a time. */
#ifndef CGPIPE_TOKENIZER_H
#define CGPIPE_TOKENIZER_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_tokenizer cgp_tokenizer;

/** A growing list of tokens. Begins as {NULL, 0, 0}; setting `count` to 0 reuses its memory. */
typedef struct cgp_token_list {
    int32_t *ids;     /**< [count], 0 <= id < vocab_size. Owned by the caller, free() it. */
    int64_t count;    /**< Tokens in the list. */
    int64_t capacity; /**< Tokens that its memory holds. */
} cgp_token_list;

/**
 * Read a tokenizer from the two files that OpenAI and Hugging Face publish with GPT-2.
 *
 * The vocabulary is one JSON object from tokens to ids. A token is written with one printable
 * character for each of its bytes: the byte itself if it is 0x21..0x7e, 0xa1..0xac or 0xae..0xff,
 * else U+0100 and on in the order of the others (a space is U+0120). The ids of n tokens are 0 ..
 * n-1, and each of the 256 bytes has a token.
 *
 * The merges are lines of two tokens with a space between, the first to apply first. Both, and
 * their concatenation, are in the vocabulary; no line is there twice. Lines that begin with
 * "#version" are skipped; CR LF ends a line as LF does.
 *
 * @param[out] out         Owned by the caller, see cgp_tokenizer_destroy().
 * @param[in]  vocab       Path of vocab.json. Borrowed.
 * @param[in]  merges      Path of merges.txt. Borrowed.
 *
 * @retval CGP_EIO      A file is missing, unreadable or not a regular file; the message names it.
 * @retval CGP_EFORMAT  A file is not as above; the message has file, line (of JSON, where it is
 * known) and reason.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: GPT-2's 50257 tokens: some 0.1 s, and about 5 MiB of memory.
 * Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2;
 * Sennrich et al. 2016, arXiv:1508.07909; the file formats of Hugging Face's tokenizers.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_create(cgp_tokenizer **out, const char *vocab,
                                                       const char *merges);

/**
 * Read a tokenizer from a tokenizer.json.
 *
 * All that the file says is done as Hugging Face's tokenizers does it, or refused by name. These
 * parts are understood:
 *
 *     model           BPE of bytes, as in cgp_tokenizer_create(); merges as "left right" or ["left", "right"]; ignore_merges
 *     normalizer      null, NFC
 *     added_tokens    special or not, with single_word, lstrip, rstrip, normalized
 *     pre_tokenizer   ByteLevel, with add_prefix_space and use_regex; or Split (Isolated, not inverted) by the pattern of GPT-2,
 *                     Llama 3 or Qwen2, then ByteLevel without use_regex
 *     post_processor  null, ByteLevel, TemplateProcessing, or a Sequence of these: see cgp_tokenizer_prefix()
 *     decoder         ByteLevel
 *
 * SentencePiece's models (Unigram, Metaspace, byte_fallback), WordPiece, other normalizers and
 * patterns, truncation and padding are not. The ids of n tokens are 0 .. n-1; added tokens that are
 * not in the model's vocabulary have those behind it.
 *
 * @param[out] out   Owned by the caller, see cgp_tokenizer_destroy().
 * @param[in]  path  Of the file. Borrowed.
 *
 * @retval CGP_EIO      The file is missing, unreadable or not a regular file; the message names it.
 * @retval CGP_EFORMAT  The file is not as above; the message has its key, what was expected and
 * what came. Also for more than 1 GiB,
 *                      or more memory for JSON than the limit (CGP_LIMITS=json=BYTES).
 * @retval CGP_EINVAL   CGP_LIMITS is invalid.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: for 128,000 tokens some 2 s, and while it reads several 100 MiB.
 * Source: https://github.com/huggingface/tokenizers, release 0.23.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_open(cgp_tokenizer **out, const char *path);

/** Free a tokenizer. Accepts NULL. */
CGP_API void cgp_tokenizer_destroy(cgp_tokenizer *tokenizer);

/** Return the number of tokens; ids are below it. */
CGP_API int64_t cgp_tokenizer_vocab_size(const cgp_tokenizer *tokenizer);

/**
 * Return the id of the token that ends a document: "<|endoftext|>" or Llama 3's "<|end_of_text|>", -1 if there is neither. In a
 * tokenizer.json it is an added token.
 */
CGP_API int32_t cgp_tokenizer_end_of_text(const cgp_tokenizer *tokenizer);

/**
 * Return the id of an added token by its content, "<|eot_id|>", else of a token by its bytes, " the"; -1 if there is none.
 *
 * @param[in] text  Borrowed.
 *
 * Threads: any. Cost: looks at every token.
 */
CGP_API int32_t cgp_tokenizer_token_id(const cgp_tokenizer *tokenizer, const char *text);

/**
 * Return the tokens that the template of a tokenizer.json puts before a text, as Llama 3's <|begin_of_text|>.
 *
 * With them and cgp_tokenizer_suffix() behind it a text has the tokens of tokenizers'
 * add_special_tokens=True; cgp_tokenizer_encode() alone gives those of add_special_tokens=False.
 *
 * @param[out] count  Tokens, 0 if there is no template.
 *
 * @return [count], borrowed until the tokenizer is destroyed; may be NULL if *count is 0.
 *
 * Threads: any.
 */
CGP_API const int32_t *cgp_tokenizer_prefix(const cgp_tokenizer *tokenizer, int64_t *count);

/** Return the tokens that the template puts behind a text: see cgp_tokenizer_prefix(). */
CGP_API const int32_t *cgp_tokenizer_suffix(const cgp_tokenizer *tokenizer, int64_t *count);

/**
 * Append the tokens of a text.
 *
 * Added tokens in the text, special ones too, become their ids; one with `normalized` is looked for
 * after normalization.
 * (vocab.json has none: its "<|endoftext|>" in a text is thirteen characters like all others.) The rest is split into words by
 * the pattern of the file, of vocab.json by GPT-2's
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * and each word, as bytes, merged: as long as two neighbours have a merge, the leftmost of those
 * that come first in the merges. For UTF-8 the tokens are those of Hugging Face's tokenizers,
 * release 0.23, with its letters, numbers (Unicode 16) and its normalization (Unicode 9), whatever
 * libraries there are.
 *
 * A byte that is not part of a well-formed UTF-8 sequence becomes its own token, and ends the text
 * before it: the tokens of a + byte + b are those of a, of the byte, and of b. (Hugging Face's take
 * text only, not bytes.)
 *
 * @param[in]     tokenizer  Borrowed.
 * @param[in]     bytes      [count], any bytes, 0 too. Borrowed.
 * @param[in]     count      Bytes, at most INT32_MAX; see cgp_tokenizer_split_point() for longer texts.
 * @param[in,out] tokens     List to append to; unchanged after a failure, except for its capacity.
 *
 * @retval CGP_EINVAL  A negative count, or one above INT32_MAX, normalized too.
 * @retval CGP_ENOMEM
 *
 * Cost: linear, but for a word of n bytes n log n. Allocates where the list, the longest word or,
 * with NFC, the text grows. Source: as cgp_tokenizer_open(); GPT-2's pattern is that of its
 * encoder.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_encode(cgp_tokenizer *tokenizer, const void *bytes,
                                                       int64_t count, cgp_token_list *tokens);

/**
 * Return the last position where a text can be split, so that the tokens of its two parts are those
 * of the whole, whatever follows; 0 if there is none.
 *
 * It is before a space that follows a printable character of ASCII, or before a line feed that
 * follows one (with Llama 3's and Qwen2's patterns a letter or number), unless an added token may
 * lie across it: no word continues there. A tokenizer without a pattern for words has none.
 *
 * @param[in] tokenizer  Borrowed.
 * @param[in] bytes      [count], count >= 0. Borrowed.
 *
 * Threads: any. Cost: reads backwards to that position.
 */
CGP_API int64_t cgp_tokenizer_split_point(const cgp_tokenizer *tokenizer, const void *bytes,
                                          int64_t count);

/**
 * Join the bytes of tokens.
 *
 * The result is UTF-8 only if the tokens end at characters. Of tokenizers it is
 * decode(skip_special_tokens=False), whose ill-formed bytes are U+FFFD. An added token is its
 * content; as there, characters that stand for bytes are these if all of
 * them do ("<|end|>" does, and so does "\u00e9": the byte 0xe9).
 *
 * @param[in]  tokenizer  Borrowed.
 * @param[in]  ids        [n_ids], 0 <= id < vocab_size. Borrowed.
 * @param[out] bytes      [count] and a 0 after them. Owned by the caller, free() it.
 * @param[out] count      Bytes.
 *
 * @retval CGP_EINVAL  An id that the vocabulary does not have; the message has it and its index.
 * @retval CGP_ENOMEM
 *
 * Threads: any, several at a time too.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_decode(const cgp_tokenizer *tokenizer,
                                                       const int32_t *ids, int64_t n_ids,
                                                       char **bytes, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
