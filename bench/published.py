#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The published tables of torchgpipe v0.0.7 (benchmarks/ and docs/benchmarks.rst, measured on eight
Tesla P40), and the tables of Huang et al. (GPipe), arXiv:1811.06965, as torchgpipe quotes them.

Each entry has: name, model, batch, chunks, stages, balance ([]: no balance is published),
recompute, figures (None: no figure is published)."""

RESNET = "resnet:depth=101"
UNET = "unet:B=5,C=64"
AMOEBA = "amoebanetd:L=18,D=256"

TABLES = {
    "resnet101-speed": {
        "title": "ResNet-101 at 224 x 224, 1000 classes, cross-entropy, SGD",
        "optimizer": "sgd",
        "headings": ["samples/s", "x", "x Huang", "samples/s v0.0.2", "samples/s v0.0.4"],
        "cells": [
            ("naive-1", RESNET, 118, 1, 1, [], "never", [95.862, 1, 1, 100.506, 92.539]),
            ("pipeline-1", RESNET, 220, 2, 1, [370], "except_last",
             [81.796, 0.853, 0.80, 73.925, 69.960]),
            ("pipeline-2", RESNET, 25000, 1667, 2, [135, 235], "except_last",
             [135.539, 1.414, 1.418, 135.691, 137.788]),
            ("pipeline-4", RESNET, 5632, 256, 4, [44, 92, 124, 110], "except_last",
             [265.958, 2.774, 2.182, 230.216, 243.322]),
            ("pipeline-8", RESNET, 5400, 150, 8, [26, 22, 33, 44, 44, 66, 66, 69], "except_last",
             [411.662, 4.294, 2.891, 312.945, 404.084]),
        ],
    },
    "amoebanetd-speed": {
        "title": "AmoebaNet-D(18, 256) at 224 x 224, 1000 classes, cross-entropy, SGD",
        "optimizer": "sgd",
        "headings": ["samples/s", "x", "x Huang"],
        "cells": [
            ("n2m1", AMOEBA, 96, 1, 2, [7, 17], "always", [26.733, 1, 1]),
            ("n2m4", AMOEBA, 256, 4, 2, [9, 15], "except_last", [41.133, 1.539, 1.07]),
            ("n2m32", AMOEBA, 1280, 32, 2, [9, 15], "except_last", [47.386, 1.773, 1.21]),
            ("n4m1", AMOEBA, 160, 1, 4, [3, 4, 5, 12], "always", [26.827, 1.004, 1.13]),
            ("n4m4", AMOEBA, 360, 4, 4, [3, 6, 7, 8], "except_last", [44.543, 1.666, 1.26]),
            ("n4m32", AMOEBA, 1152, 32, 4, [3, 6, 7, 8], "except_last", [72.412, 2.709, 1.84]),
            ("n8m1", AMOEBA, 196, 1, 8, [2, 2, 2, 2, 2, 3, 4, 7], "always", [24.918, 0.932, 1.38]),
            ("n8m4", AMOEBA, 480, 4, 8, [2, 2, 2, 3, 3, 4, 4, 4], "except_last",
             [70.065, 2.621, 1.72]),
            ("n8m32", AMOEBA, 1280, 32, 8, [2, 2, 2, 3, 3, 4, 4, 4], "except_last",
             [132.413, 4.953, 3.48]),
        ],
    },
    "unet-speed": {
        "title": "U-Net(5, 64) at 192 x 192, binary cross-entropy, SGD",
        "optimizer": "sgd",
        "headings": ["samples/s", "x"],
        "cells": [
            ("baseline", UNET, 40, 1, 1, [], "never", [28.500, 1]),
            ("pipeline-1", UNET, 80, 2, 1, [241], "except_last", [24.456, 0.858]),
            ("pipeline-2", UNET, 512, 32, 2, [104, 137], "except_last", [35.502, 1.246]),
            ("pipeline-4", UNET, 512, 16, 4, [30, 66, 84, 61], "except_last", [67.042, 2.352]),
            ("pipeline-8", UNET, 640, 40, 8, [16, 27, 31, 44, 22, 57, 27, 17], "except_last",
             [88.497, 3.105]),
        ],
    },
    "amoebanetd-memory": {
        "title": "AmoebaNet-D at 224 x 224, 1000 classes, batch 128, 128 micro-batches, RMSprop",
        "optimizer": "rmsprop",
        "headings": ["model GiB", "activation GiB", "Huang model GB", "Huang activation GB"],
        "cells": [
            ("baseline", "amoebanetd:L=18,D=208", 128, 1, 1, [], "never", [0.91, None, 1.05, 6.26]),
            ("pipeline-1", "amoebanetd:L=18,D=416", 128, 128, 1, [24], "except_last",
             [3.57, 0.91, 3.8, 3.46]),
            ("pipeline-2", "amoebanetd:L=18,D=544", 128, 128, 2, [16, 8], "except_last",
             [6.07, 3.39, 6.45, 8.11]),
            ("pipeline-4", "amoebanetd:L=36,D=544", 128, 128, 4, [16, 12, 7, 7], "except_last",
             [11.80, 6.91, 12.53, 15.21]),
            ("pipeline-8", "amoebanetd:L=72,D=512", 128, 128, 8, [23, 16, 11, 6, 6, 5, 5, 6],
             "except_last", [20.62, 10.83, 24.62, 26.24]),
        ],
    },
    "amoebanetd-memory-old": {
        "title": "AmoebaNet-D as before v0.0.5, at 224 x 224, 10 classes, batch 128, "
                 "128 micro-batches, RMSprop",
        "optimizer": "rmsprop",
        "headings": ["model GB", "activation GB"],
        "cells": [
            ("baseline", "amoebanetd:L=6,D=208,old=1", 128, 1, 1, [], "never", [1.00, None]),
            ("pipeline-1", "amoebanetd:L=6,D=416,old=1", 128, 128, 1, [], "except_last",
             [4.01, 6.64]),
            ("pipeline-2", "amoebanetd:L=6,D=544,old=1", 128, 128, 2, [], "except_last",
             [6.45, 11.31]),
            ("pipeline-4", "amoebanetd:L=12,D=544,old=1", 128, 128, 4, [], "except_last",
             [13.00, 18.72]),
            ("pipeline-8", "amoebanetd:L=24,D=512,old=1", 128, 128, 8, [], "except_last",
             [22.42, 35.78]),
        ],
    },
    "unet-memory": {
        "title": "U-Net at 192 x 192, batch 32, binary cross-entropy, SGD",
        "optimizer": "sgd",
        "headings": ["total GiB"],
        "cells": [
            ("baseline", "unet:B=6,C=72", 32, 1, 1, [], "never", [20.3]),
            ("pipeline-1", "unet:B=11,C=128", 32, 32, 1, [505], "except_last", [20.5]),
            ("pipeline-2", "unet:B=24,C=128", 32, 32, 2, [526, 551], "except_last", [43.4]),
            ("pipeline-4", "unet:B=24,C=160", 32, 32, 4, [472, 54, 36, 515], "except_last", [79.1]),
            ("pipeline-8", "unet:B=48,C=160", 32, 128, 8, [800, 140, 62, 36, 36, 36, 36, 987],
             "except_last", [154.1]),
        ],
    },
}
