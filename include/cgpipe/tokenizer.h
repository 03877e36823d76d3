/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h -- converts text to tokens and back, by byte-level byte-pair encoding. It reads a
 * tokenizer.json of Hugging Face's tokenizers (GPT-2, Llama 3, Qwen2 and similar), or GPT-2's files
 * vocab.json and merges.txt.
 *
 *     "It's 7 a.m."      bytes
 *     It|'s| 7| a|.|m|.  pre-tokenization: GPT-2's pattern cuts words of letters, of numbers or of
 *                        other characters, each with one space before it
 *     I t -> It          merges: in each word, join the neighbours that come first in the merges
 *     It -> an id        vocabulary: each token has an id
 *
 * Every byte has its own token. So every sequence of bytes has tokens, and decoding them returns
 * the same bytes.
 *
 * Threads: a tokenizer belongs to one thread at a time. */
#ifndef CGPIPE_TOKENIZER_H
#define CGPIPE_TOKENIZER_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_tokenizer cgp_tokenizer;

/** A growing list of tokens. Start with {NULL, 0, 0}; setting `count` to 0 reuses its memory. */
typedef struct cgp_token_list {
    int32_t *ids;     /**< [count], 0 <= id < vocab_size. Owned by the caller, who calls free(). */
    int64_t count;    /**< Number of tokens in the list. */
    int64_t capacity; /**< Number of tokens for which `ids` has memory. */
} cgp_token_list;

/**
 * Read a tokenizer from the two files that OpenAI and Hugging Face publish with GPT-2.
 *
 * The vocabulary is one JSON object from tokens to ids. A token is written with one printable
 * character for each of its bytes. Bytes 0x21..0x7e, 0xa1..0xac and 0xae..0xff are written as
 * themselves. The other bytes, in order, are written as U+0100 and the characters after it (a space
 * is U+0120). The ids of n tokens are 0 .. n-1, and each of the 256 bytes has a token.
 *
 * The merges are lines of two tokens with a space between; earlier lines apply first. The
 * vocabulary has both tokens and their concatenation, and no line occurs twice. Lines that begin
 * with "#version" are skipped. Lines end in LF or CR LF.
 *
 * @param[out] out         Owned by the caller, see cgp_tokenizer_destroy().
 * @param[in]  vocab       Path of vocab.json. Borrowed.
 * @param[in]  merges      Path of merges.txt. Borrowed.
 *
 * @retval CGP_EIO      A file is missing, unreadable or not a regular file; the message names it.
 * @retval CGP_EFORMAT  A file is not as described; the message gives the file, the line (in JSON,
 *                      if it is known) and the reason.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: about 0.1 s and 5 MiB of memory for GPT-2's 50257 tokens.
 * Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2;
 * Sennrich et al. 2016, arXiv:1508.07909; the file formats of Hugging Face's tokenizers.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_create(cgp_tokenizer **out, const char *vocab,
                                                       const char *merges);

/**
 * Read a tokenizer from a tokenizer.json.
 *
 * Every part of the file either has the same effect as in Hugging Face's tokenizers or is refused;
 * the message then names the part. These parts are supported:
 *
 *     model           BPE of bytes, as in cgp_tokenizer_create();
 *                     merges as "left right" or ["left", "right"]; ignore_merges
 *     normalizer      null, NFC
 *     added_tokens    special or not, with single_word, lstrip, rstrip, normalized
 *     pre_tokenizer   ByteLevel, with add_prefix_space and use_regex; or Split (Isolated, not
 *                     inverted) by the pattern of GPT-2, Llama 3 or Qwen2, then ByteLevel
 *                     without use_regex
 *     post_processor  null, ByteLevel, TemplateProcessing, or a Sequence of these:
 *                     see cgp_tokenizer_prefix()
 *     decoder         ByteLevel
 *
 * SentencePiece models (Unigram, Metaspace, byte_fallback), WordPiece, other normalizers and
 * patterns are not supported. Truncation and padding are ignored with a warning in the log. The ids
 * of n tokens are 0 .. n-1; added tokens that are not in the model's vocabulary have the ids after
 * it.
 *
 * @param[out] out   Owned by the caller, see cgp_tokenizer_destroy().
 * @param[in]  path  Path of the file. Borrowed.
 *
 * @retval CGP_EIO      The file is missing, unreadable or not a regular file; the message names it.
 * @retval CGP_EFORMAT  The file is not as described; the message has the wrong key, the expected
 *                      and the actual value. Or the file is larger than 1 GiB, or its JSON needs
 *                      more memory than the limit (CGP_LIMITS=json=BYTES).
 * @retval CGP_EINVAL   CGP_LIMITS is invalid.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: about 2 s and several hundred MiB of temporary memory for 128,000 tokens.
 * Source: https://github.com/huggingface/tokenizers, release 0.23.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_open(cgp_tokenizer **out, const char *path);

/** Free a tokenizer. Accepts NULL. */
CGP_API void cgp_tokenizer_destroy(cgp_tokenizer *tokenizer);

/** Return the number of tokens; all ids are less than it. */
CGP_API int64_t cgp_tokenizer_vocab_size(const cgp_tokenizer *tokenizer);

/**
 * Return the id of the token that ends a document: "<|endoftext|>" or Llama 3's "<|end_of_text|>";
 * -1 if there is neither. In a tokenizer.json, this token is an added token.
 */
CGP_API int32_t cgp_tokenizer_end_of_text(const cgp_tokenizer *tokenizer);

/**
 * Return the id of the added token with this content (such as "<|eot_id|>"), otherwise the id of
 * the token with these bytes (such as " the"); -1 if there is neither.
 *
 * @param[in] text  Borrowed.
 *
 * Threads: any. Cost: compares every token.
 */
CGP_API int32_t cgp_tokenizer_token_id(const cgp_tokenizer *tokenizer, const char *text);

/**
 * Return the tokens that the template of a tokenizer.json puts before a text, such as Llama 3's
 * <|begin_of_text|>.
 *
 * This prefix, the tokens of a text and the suffix (cgp_tokenizer_suffix()) together equal the
 * result of Hugging Face's tokenizers with add_special_tokens=True. cgp_tokenizer_encode() alone
 * equals their result with add_special_tokens=False.
 *
 * @param[out] count  Number of tokens; 0 if there is no template.
 *
 * @return [count], borrowed until the tokenizer is destroyed; may be NULL if *count is 0.
 *
 * Threads: any.
 */
CGP_API const int32_t *cgp_tokenizer_prefix(const cgp_tokenizer *tokenizer, int64_t *count);

/** Return the tokens that the template puts after a text: see cgp_tokenizer_prefix(). */
CGP_API const int32_t *cgp_tokenizer_suffix(const cgp_tokenizer *tokenizer, int64_t *count);

/**
 * Append the tokens of a text.
 *
 * Added tokens in the text, including special tokens, become their ids. The search for an added
 * token with `normalized` comes after normalization. (vocab.json has no added tokens:
 * "<|endoftext|>" in a text is thirteen ordinary characters.) The rest is split into words by the
 * pattern of the file; for vocab.json, by GPT-2's pattern:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * Then the bytes of each word are merged. While two neighbours have a merge, the pair that comes
 * first in the merges is merged; if it occurs several times, its leftmost occurrence is merged. For
 * UTF-8, the tokens equal the tokens of Hugging Face's tokenizers, release 0.23, whose letters and
 * numbers come from Unicode 16 and whose normalization comes from Unicode 9. The tokens do not
 * depend on installed libraries.
 *
 * A byte that is not part of a well-formed UTF-8 sequence becomes its own token and splits the
 * text. The text a + byte + b has the tokens of a, then the byte's token, then the tokens of b.
 * (Hugging Face's tokenizers take text only, not bytes.)
 *
 * @param[in]     tokenizer  Borrowed.
 * @param[in]     bytes [count], any bytes, including 0. Borrowed.
 * @param[in]     count Number of bytes, at most INT32_MAX; see cgp_tokenizer_split_point() for
 *                           longer texts.
 * @param[in,out] tokens     List to append to; unchanged after a failure, except for its capacity.
 *
 * @retval CGP_EINVAL  `count` is negative, or the text has more than INT32_MAX bytes before or
 *                     after normalization.
 * @retval CGP_ENOMEM
 *
 * Cost: linear in `count`, but n log n for a word of n bytes. The call allocates memory when the
 * list, the longest word or, with NFC, the text grows. Source: as cgp_tokenizer_open(); GPT-2's
 * encoder, for its pattern.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_encode(cgp_tokenizer *tokenizer, const void *bytes,
                                                       int64_t count, cgp_token_list *tokens);

/**
 * Return the last position where a text can be split so that its two parts have the same tokens as
 * the whole text, whatever text follows. 0 if there is no such position.
 *
 * The position is before a space or a line feed, after a printable ASCII character. For Llama 3 and
 * Qwen2, a line feed must follow a letter or a number. A tokenizer with add_prefix_space has no
 * positions before line feeds. No word continues across the position, and no added token can lie
 * across it. A tokenizer without a pattern for words has no such position.
 *
 * @param[in] tokenizer  Borrowed.
 * @param[in] bytes      [count], count >= 0. Borrowed.
 *
 * Threads: any. Cost: reads backwards to that position.
 */
CGP_API int64_t cgp_tokenizer_split_point(const cgp_tokenizer *tokenizer, const void *bytes,
                                          int64_t count);

/**
 * Decode tokens: join their bytes.
 *
 * The result is UTF-8 only if the tokens end at character boundaries. It equals the result of
 * tokenizers' decode(skip_special_tokens=False), except that decode() writes U+FFFD for ill-formed
 * bytes. An added token decodes to its content. As in tokenizers, if all characters of the content
 * stand for bytes, they decode to these bytes: "\u00e9" decodes to the byte 0xe9, "<|end|>" to
 * itself.
 *
 * @param[in]  tokenizer  Borrowed.
 * @param[in]  ids        [n_ids], 0 <= id < vocab_size. Borrowed.
 * @param[out] bytes      [count] The bytes, followed by a 0. Owned by the caller, who calls free().
 * @param[out] count      Number of bytes.
 *
 * @retval CGP_EINVAL  An id is not in the vocabulary. The message has the id and its index.
 * @retval CGP_ENOMEM
 *
 * Threads: any; several threads may call this function at the same time.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_tokenizer_decode(const cgp_tokenizer *tokenizer,
                                                       const int32_t *ids, int64_t n_ids,
                                                       char **bytes, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
