#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small vocabulary with SentencePiece on texts of our own and writes it as a GGUF file.

It is of the kind of Llama 2: a space leads text, runs of spaces are pieces, what is in no piece is
spelled in bytes. tests/goldens/tokenizer/spm_small.gguf was made with it.
Needs the packages sentencepiece, protobuf and gguf. Usage: make_spm_vocabulary.py OUTPUT.gguf
"""
import io
import random
import sys

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from tokenizer_references import HARD_TEXTS, SPM_TEXTS, own_texts

PIECES = 1100
# Special tokens: control, then user-defined ones.
CONTROL = ["<|user|>", "<|end|>"]
USER_DEFINED = ["<note>"]
UNKNOWN, BEGIN, END = 0, 1, 2


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = random.Random(3)
    # SentencePiece takes a text's line ends for the ends of texts.
    lines = own_texts(source, 4000) + [text for text in HARD_TEXTS + SPM_TEXTS if "\n" not in text]
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=trained, model_type="bpe", vocab_size=PIECES,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, character_coverage=0.999, split_digits=True,
        control_symbols=CONTROL, user_defined_symbols=USER_DEFINED, unk_id=UNKNOWN, bos_id=BEGIN,
        eos_id=END, num_threads=1, minloglevel=2)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(trained.getvalue())
    pieces = [(piece.piece, piece.score, int(piece.type)) for piece in model.pieces]
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    writer.add_add_space_prefix(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    print("%d tokens" % len(pieces))


if __name__ == "__main__":
    main()
