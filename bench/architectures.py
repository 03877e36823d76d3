#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Capture 30 well-known architectures, and compare their losses with the losses of eager PyTorch.

The table shows which architectures are captured, how much of each runs outside the engine, and
whether its losses follow PyTorch's losses.

    PYTHONPATH=python CGPIPE_LIBRARY=build/libcgpipe.so venv/bin/python bench/architectures.py
    ... bench/architectures.py bert swin            # these alone

The models are small and have random weights; nothing is downloaded. Dropout and stochastic depth
are 0. Each model trains for 10 steps of SGD with learning rate 1e-4. Each step uses a new batch.

`outside` is the share of the pipeline's time that PyTorch runs. `loss` is the largest difference
between a loss of the pipeline and eager PyTorch's loss. `itself` is the largest change of eager
PyTorch's loss when the samples of each batch are permuted (in three ways). `loss` may be at most
2e-5 or 4 times `itself`, whichever is larger.

If the package of an architecture is missing, the script skips the architecture and says so. The
exit code is 1 if `loss` exceeds its bound, or if an architecture is refused."""
import argparse
import copy
import gc
import pathlib
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, BATCH, TOKENS, WORDS = 7, 4, 12, 50


# --- inputs and losses ---


def images(size=64, channels=3):
    """Return a function that draws images [N, C, size, size] and their classes."""
    def draw():
        return (torch.randn(BATCH, channels, size, size),), torch.randint(CLASSES, (BATCH,))
    return draw


def segments():
    return (torch.randn(BATCH, 3, 64, 64),), torch.randint(CLASSES, (BATCH, 64, 64))


def texts():
    ids = torch.randint(1, WORDS, (BATCH, TOKENS + 1))
    return (ids[:, :-1],), ids[:, 1:]


def masked_texts():
    """Return tokens, a mask of the tokens with a random length for each sample, and targets."""
    mask = torch.arange(TOKENS) < torch.randint(3, TOKENS + 1, (BATCH, 1))
    return ((torch.randint(3, WORDS, (BATCH, TOKENS)), mask.long()),
            torch.randint(CLASSES, (BATCH,)))


def classified(output, target):
    """Return the cross-entropy of one class for each sample, or of one class for each token."""
    logits = output["out"] if isinstance(output, dict) and "out" in output else output
    logits = getattr(logits, "logits", logits)
    if logits.dim() == 3:
        logits, target = logits.flatten(0, 1), target.flatten()
    return F.cross_entropy(logits, target)


def first_token(output, target):
    """Return a loss that is computed from the state of the first token."""
    return F.cross_entropy(output.last_hidden_state[:, 0], target)


# --- torchvision ---


def vision(name):
    from torchvision import models
    from torchvision.models import convnext, densenet, regnet, swin_transformer, vgg
    if name == "vgg":
        net = vgg.VGG(vgg.make_layers([8, "M", 16, "M", 32, "M", 512, "M"], batch_norm=True),
                      CLASSES, dropout=0)
        net.classifier[0], net.classifier[3] = nn.Linear(25088, 32), nn.Linear(32, 32)
        net.classifier[6] = nn.Linear(32, CLASSES)
        return net
    if name == "densenet":
        return densenet.DenseNet(8, (2, 2, 2, 2), 16, num_classes=CLASSES)
    if name == "convnext":
        block = convnext.CNBlockConfig
        return convnext.ConvNeXt([block(16, 32, 2), block(32, 48, 2), block(48, None, 2)], 0.0,
                                 num_classes=CLASSES)
    if name == "regnet":
        return regnet.RegNet(regnet.BlockParams.from_init_params(6, 24, 24.0, 2.2, 8, 0.25),
                             CLASSES)
    if name == "swin":
        return swin_transformer.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4],
                                                stochastic_depth_prob=0, num_classes=CLASSES)
    if name in ("fcn", "deeplab"):
        from torchvision.models.segmentation import deeplabv3, fcn
        backbone = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], width_per_group=16,
                                 replace_stride_with_dilation=[False, True, True])
        make = {"fcn": fcn._fcn_resnet, "deeplab": deeplabv3._deeplabv3_resnet}[name]
        net = make(backbone, CLASSES, None)
        for module in net.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return net
    if name == "mobilenet_v3":
        return models.mobilenet_v3_small(num_classes=CLASSES, dropout=0)
    return models.efficientnet_b0(num_classes=CLASSES, dropout=0, stochastic_depth_prob=0)


# --- transformers ---

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
NO_DROPOUT = dict(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
DECODER = dict(vocab_size=WORDS, max_position_embeddings=32, bos_token_id=1, eos_token_id=2)


def encoder(name):
    import transformers as t
    if name == "bert":
        return t.BertModel(t.BertConfig(vocab_size=WORDS, max_position_embeddings=32, **SMALL,
                                        **NO_DROPOUT))
    if name == "roberta":
        return t.RobertaModel(t.RobertaConfig(vocab_size=WORDS, max_position_embeddings=32,
                                              type_vocab_size=1, **SMALL, **NO_DROPOUT))
    if name == "distilbert":
        return t.DistilBertModel(t.DistilBertConfig(
            vocab_size=WORDS, max_position_embeddings=32, n_layers=2, n_heads=4, dim=32,
            hidden_dim=64, dropout=0, attention_dropout=0))
    if name == "t5 encoder":
        return t.T5EncoderModel(t.T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64,
                                           num_layers=2, num_heads=4, dropout_rate=0))
    if name == "vit":
        config = t.ViTConfig(image_size=64, patch_size=16, **SMALL, **NO_DROPOUT)
        config.num_labels = CLASSES
        return t.ViTForImageClassification(config)
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    return WhisperEncoder(t.WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, dropout=0,
        num_mel_bins=8, max_source_positions=20, vocab_size=WORDS, attention_dropout=0,
        activation_dropout=0, encoder_layerdrop=0, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1))


def decoder(name):
    """Return a causal model with its default options, which include a cache of keys and values."""
    import transformers as t
    if name == "gpt2":
        return t.GPT2LMHeadModel(t.GPT2Config(
            n_layer=2, n_embd=32, n_head=4, vocab_size=WORDS, n_positions=32, bos_token_id=1,
            eos_token_id=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    if name == "opt":
        return t.OPTForCausalLM(t.OPTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, dropout=0,
            attention_dropout=0, layerdrop=0, word_embed_proj_dim=32, pad_token_id=0, **DECODER))
    if name == "gpt-neox":
        return t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**SMALL, **DECODER, hidden_dropout=0,
                                                    attention_dropout=0))
    grouped = dict(SMALL, num_key_value_heads=2)
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**grouped, **DECODER))
    if name == "qwen2":
        return t.Qwen2ForCausalLM(t.Qwen2Config(**grouped, **DECODER))
    return t.MistralForCausalLM(t.MistralConfig(**grouped, **DECODER, sliding_window=5))


# --- timm ---


def timm_model(name):
    from timm.models import deit, mlp_mixer, nfnet
    if name == "mixer":
        return mlp_mixer.MlpMixer(CLASSES, 64, patch_size=16, num_blocks=2, embed_dim=32)
    if name == "resmlp":
        return mlp_mixer.MlpMixer(
            CLASSES, 64, patch_size=16, num_blocks=2, embed_dim=32, mlp_ratio=4,
            block_layer=mlp_mixer.ResBlock, norm_layer=mlp_mixer.Affine)
    if name == "deit":
        return deit.VisionTransformerDistilled(img_size=64, patch_size=16, embed_dim=32, depth=2,
                                               num_heads=4, num_classes=CLASSES)
    config = nfnet.NfCfg((1, 1, 1, 1), (32, 48, 64, 64), stem_type="deep", stem_chs=32,
                         group_size=16, extra_conv=True, attn_layer="se", num_features=64,
                         act_layer="gelu", skipinit=True, attn_kwargs={"rd_ratio": 0.5})
    return nfnet.NormFreeNet(config, num_classes=CLASSES, drop_rate=0, drop_path_rate=0)


# --- PyTorch alone ---


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(WORDS, 16), nn.LSTM(16, 24, 2, batch_first=True)
        self.head = nn.Linear(24, WORDS)

    def forward(self, ids):
        return self.head(self.lstm(self.words(ids))[0])


class Masked(nn.Module):
    """An nn.TransformerEncoder with a causal mask, or with a padding mask for each sample."""

    def __init__(self, causal):
        super().__init__()
        self.causal, self.words = causal, nn.Embedding(WORDS, 32)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2)
        self.head = nn.Linear(32, WORDS if causal else CLASSES)

    def forward(self, ids, mask=None):
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.head(self.encoder(self.words(ids), mask, is_causal=True))
        return self.head(self.encoder(self.words(ids), src_key_padding_mask=mask == 0)[:, 0])


def conv_net(dims):
    """Return a net of convolutions, batch norms and pools, all in one or all in three
    dimensions."""
    conv, norm, pool, last = {
        1: (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d),
        3: (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d, nn.AdaptiveAvgPool3d)}[dims]
    return nn.Sequential(conv(3, 8, 3, padding=1), norm(8), nn.ReLU(), pool(2),
                         conv(8, 16, 3, stride=2, padding=1), norm(16), nn.ReLU(), last(1),
                         nn.Flatten(), nn.Linear(16, CLASSES))


def boxes(*sizes):
    return lambda: ((torch.randn(BATCH, 3, *sizes),), torch.randint(CLASSES, (BATCH,)))


def mels():
    return (torch.randn(BATCH, 8, 40),), torch.randint(CLASSES, (BATCH,))


# --- the table ---

ARCHITECTURES = {
    **{name: (vision, images(), classified)
       for name in ("vgg", "mobilenet_v3", "efficientnet", "convnext", "densenet", "regnet",
                    "swin")},
    "fcn": (vision, segments, classified), "deeplab": (vision, segments, classified),
    **{name: (encoder, masked_texts, first_token)
       for name in ("bert", "distilbert", "roberta", "t5 encoder")},
    **{name: (decoder, texts, classified)
       for name in ("gpt2", "opt", "gpt-neox", "llama", "qwen2", "mistral")},
    "vit": (encoder, images(), classified), "whisper encoder": (encoder, mels, first_token),
    **{name: (timm_model, images(), classified) for name in ("mixer", "resmlp", "deit", "nfnet")},
    "LSTM": (lambda _: Recurrent(), texts, classified),
    "TransformerEncoder, causal": (lambda _: Masked(True), texts, classified),
    "TransformerEncoder, padded": (lambda _: Masked(False), masked_texts, classified),
    "Conv1d net": (lambda _: conv_net(1), boxes(64), classified),
    "Conv3d net": (lambda _: conv_net(3), boxes(8, 16, 16), classified),
}


def eager(module, loss, batches, order=None):
    """Return the losses of eager PyTorch. ``order`` is a permutation of the samples."""
    module = copy.deepcopy(module)
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=1e-4), []
    for inputs, target in batches:
        if order is not None:
            inputs, target = [x[order] for x in inputs], target[order]
        optimizer.zero_grad()
        value = loss(module(*inputs), target)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


def ours(module, loss, batches, options):
    """Return the losses of the pipeline, and the regions that PyTorch runs."""
    import cgpipe
    (inputs, target), chunks = batches[0], options.chunks
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()):
        chunks = 1  # as in eager PyTorch, batch norms take the statistics of the whole batch
    model = cgpipe.from_torch(module, inputs, loss=loss, example_target=target)
    with cgpipe.Pipeline(model, stages=min(options.stages, len(model.layers)), chunks=chunks,
                         batch=BATCH, optimizer=cgpipe.SGD(lr=1e-4)) as pipeline:
        return [pipeline.step(*given, wanted) for given, wanted in batches], model._captured.regions


def measure(name, options):
    """Return a line of the table, and whether the losses stay within the bound."""
    make, draw, loss = ARCHITECTURES[name]
    torch.manual_seed(3)
    try:
        module = make(name).train()
    except ImportError as error:
        return f"skipped: there is no {error.name}", True
    batches = [draw() for _ in range(options.steps)]
    want = eager(module, loss, batches)
    orders = [torch.arange(BATCH).roll(shift) for shift in range(1, BATCH)]
    itself = max(abs(a - b) for order in orders
                 for a, b in zip(want, eager(module, loss, batches, order)))
    begin = time.perf_counter()
    try:
        got, regions = ours(module, loss, batches, options)
    except Exception as error:
        if options.trace:
            raise
        lines = str(error).splitlines() or [""]
        return f"refused: {type(error).__name__}: {lines[0]}", False
    far = max(abs(a - b) for a, b in zip(got, want))
    holds = far <= max(2e-5, 4 * itself)
    outside = sum(r.seconds for r in regions.all) / (regions.seconds or 1)
    line = (f"{'captured' if not regions.all else 'partly' if outside < 0.5 else 'PyTorch':9}"
            f" {100 * outside:6.1f} % {far:9.1e} {itself:9.1e} {'yes' if holds else 'NO':>6}"
            f" {time.perf_counter() - begin:6.1f} s")
    if options.verbose and regions.all:
        line += "\n    " + regions.report().replace("\n", "\n    ")
    return line, holds


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="architectures (all)")
    for name, default in (("steps", 10), ("stages", 1), ("chunks", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--verbose", action="store_true", help="print what PyTorch runs, and why")
    parser.add_argument("--trace", action="store_true", help="raise the exception of a refusal")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ARCHITECTURES]
    if unknown:
        parser.error(f"{unknown[0]}: one of these is expected: {', '.join(ARCHITECTURES)}")
    warnings.simplefilter("ignore")
    print(f"PyTorch {torch.__version__}, {options.steps} steps, {options.stages} stages\n"
          f"{'architecture':27} {'':9} {'outside':>8} {'loss':>9} {'itself':>9} {'holds':>6}",
          flush=True)
    good = []
    for name in options.names or ARCHITECTURES:
        line, holds = measure(name, options)
        print(f"{name:27} {line}", flush=True)
        good.append(holds)
        gc.collect()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
    sys.exit(main())
