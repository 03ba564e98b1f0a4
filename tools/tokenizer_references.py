# SPDX-License-Identifier: Apache-2.0
"""Reference tokenizers and texts for check_tokenizer.py and make_tokenizer_goldens.py.

Byte-level vocabularies are compared with the package `tokenizers`, SentencePiece's with the package
`sentencepiece` (which needs `protobuf` to be given a vocabulary), both with llama.cpp.
"""
import functools

SPACE_MARK = "\u2581"
NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6  # of tokenizer.ggml.token_type

# Own texts, one difficulty each.
HARD_TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\n \n", "  \n\n  x", "\u00a0",
    "\u3000", "a", " a", "  a", "a ", "a  ", "a  b", "a\n\nb", "a\t\tb", "x" * 40, " " * 40,
    " " * 200 + "x", "\n" * 50, "Hello, world!",
    "hello world's we're I'll they've I'm you'd DON'T 'S 'll 'x '", "'s't're've'm'll'd", "''s",
    " 's", "it's'", "\u2019s it\u2019s", "'r", "'l", "'v", "'re1", "'lx", "2024-11-30",
    "1234567890", " 1", "  1", "   12  34", "a1b2c3", "1 2  3   4", "\n1", "x\n\n1", "3.14159",
    "1,000,000.00", "0x1F600", "v1.2.3-rc4", "\u00bd", "a\u00bdb", " \u00bd", "  \u00bd", "\u2163",
    " \u2163 \u2164", "x\u2163", "\u2460\u2461", "\u0663\u0664\u0665", "\u0967\u0968",
    "\uff11\uff12", "\u4e00\u4e8c\u4e09", "\u3007", "\u00b2\u00b3", "\U0001d7d8\U0001d7d9",
    "\u0bf0", "x\u2070y", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea",
    "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "ok \U0001f600\U0001f600!", "#\ufe0f\u20e3",
    "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "e\u0301", "caf\u00e9 cafe\u0301", "a\u0300\u0301\u0302b", "\u0301", " \u0301", "n\u0303o",
    "Z\u0351\u036b\u0343a\u0329l\u032e", "\u0915\u094d\u0937\u093f", "\u0e01\u0e33\u0e49",
    "\u1100\u1161", "\u4f60\u597d\uff0c\u4e16\u754c\uff01",
    "\u4eca\u5929\u662f2024\u5e7411\u670830\u65e5\u3002",
    "\u6211\u60f3\u627e\u4e00\u5bb6 4.5 \u5206\u4ee5\u4e0a\u7684\u9152\u5e97",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8", "\ud55c\uad6d\uc5b4 \uc2dc\ud5d8",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u05e9\u05dc\u05d5\u05dd", "\u0394\u03b9\u03ac\u03c6\u03bf\u03c1\u03b1", "\ufeffbom",
    "a\u200bb", "a\u00adb", "\u2028\u2029", "a\u0085b", "\u180e", "\u2003x", "\u1680 y", "\ufffd",
    "\uffff", "\U0010ffff", "\ue000", "\x00", "\x01\x02\x03", "\x7f", "\x1b[31mred\x1b[0m", "\x04",
    "a\x04b", ".\x04.", "\x13\x14\x16\x1d", "\U00040000", "x\U000bffffy",
    "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    "x<|im_end|>y", "<|im_start|><|im_start|>", " <|im_end|> ", "1<|im_end|>2", "<|im_start",
    "<|im_start|", "im_start|>", "<|IM_START|>", "< |im_start|>", "<|im_st\u200bart|>",
    "<<|im_start|>>", "<|<|im_end|>|>", "<repo_name>", "<reponame>", "<file_sep>a<filename>b",
    "<gh_stars>5<issue_start>", "<jupyter_code>x = 1\n<empty_output>",
    "<|im_end|>\n\n<|im_start|>assistant\n", "it's<|im_end|>'s", "a  <|im_end|>  b",
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}\n",
    '{"name": "get_weather", "arguments": {"city": "Z\u00fcrich", "days": 3}}',
    "SELECT * FROM t WHERE a>=1;", "https://example.org/a/b?c=d&e=%20f#g", "user@example.org",
    "C:\\dir\\file.txt", "$12.50 + 7% = ?", "...!!!???", "--- *** ___ ===", "a.b.c",
    "snake_case CamelCase kebab-case", "\u201cquoted\u201d \u2014 dash\u2026",
    "\u00c4\u00d6\u00dc\u00e4\u00f6\u00fc\u00df", "\u01c5\u02b0\u1d2c", "\u2170\u2188",
    "\u00aa\u00ba", "\u212b\u2126", "ab" * 300, "\u6d4b" * 100, "ha" * 50 + "!", "x \n", "x\n ",
    " \t \n x", "\r\r\n\n\ty",
]

# More of what SentencePiece's vocabularies find difficult.
SPM_TEXTS = [
    "<bos>", "<eos>hi", "<s>", "</s>", "a</s>b", "<unk>", "<pad>x", "<0x0A>", "<0x41>bc", "<0x0a>",
    "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", "<start_of_turn>",
    "<end_of_turn", " <end_of_turn> ", "x<end_of_turn>y", "<start_of_image>",
    "<table><tr><td>1</td></tr></table>", "a ></b> > </i>", "<unused0>", "[multimodal]",
    "[INST] hi [/INST]", "hello", " hello", "  hello", "hello ", "hello  ", "x" + " " * 31 + "y",
    "x" + " " * 32 + "y", "x" + " " * 95, "\n" * 31, "\n" * 32 + "x", "\t" * 40, " \t \t",
    "\n \n  \n", "caf\u00e9 \U0001d7d8", "\ue000\ue001", "\U0001f9d1\U0001f3fd\u200d\U0001f680 ok",
    "\U000f0000", "\u9f98\u9750", "\u2581", "\u2581\u2581", "a\u2581b", " \u2581 x", "\u2581" * 9,
    "a high" + " high" * 9, "<|user|>hi<|end|>", "<|user|> hi <|end|>  ", "a<note>b",
    "<note><note>  b", "<|user|", "a<|end|>b c",
]

OWN_SENTENCES = [
    "The shop on the corner opens at {n} and closes at {m}, except on Sundays.",
    "Could you book a table for {n} people near the river, please?",
    "I'd rather have the {m}-minute version; it's cheaper, isn't it?",
    "\u8bf7\u5e2e\u6211\u9884\u8ba2{n}\u4e2a\u4eba\u7684\u4f4d\u5b50"
    "\uff0c\u65f6\u95f4\u662f{m}\u70b9\u3002",
    "Wir treffen uns um {n} Uhr {m} vor dem gro\u00dfen Tor.",
    "  - item {n}:\tprice \u20ac{m}.00\n  - item {m}:\tfree\n",
    "if (count > {n}) {{ return buffer[{m}]; }}  // bounds",
    "{{\"tool\": \"search\", \"query\": \"room {n}\", \"limit\": {m}}}",
    "\u00c0 {n} heures, l'\u00e9t\u00e9 d\u00e9j\u00e0 fini, on r\u00eavait encore\u2026",
    "Version {n}.{m} fixes the crash \U0001f41b reported by anna+{n}@example.org!",
]


def own_texts(random, count):
    """`count` texts of one to three own sentences with numbers filled in."""
    texts = []
    for _ in range(count):
        sentences = [random.choice(OWN_SENTENCES) for _ in range(random.randrange(1, 4))]
        texts.append(" ".join(sentence.format(n=random.randrange(2000), m=random.randrange(60))
                              for sentence in sentences))
    return texts


def random_texts(random, count):
    """Texts that mix pieces which meet pre-tokenizer rules at their edges."""
    pieces = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "'", "'s", "'re",
              "'ll", "1", "42", "\u00bd", "\u2163", "\u0665", "\uff15", "a", "B", "the", " of",
              "ing", "\u00e9", "e\u0301", "\u4f60", "\u597d", "\u306e", "\ud55c", "\u0434",
              "\u0939\u093f", "\U0001f600", "\u200d", "\ufe0f", ".", ",", "!", "--", "_", "(", ")",
              "{", "}", "\"", "<", "|", ">", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_",
              "end|>", "\\", "/", "=", "#", "$", "\u2014", "\u201c", "\x1b", "\x7f"]
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(random.randrange(1, 30)):
            if random.random() < 0.03:
                code_point = random.randrange(0x110000)
                # Surrogates are not text; from U+40000 on the smaller vocabularies lack lead bytes.
                if not 0xD800 <= code_point < 0xE000 and not 0x40000 <= code_point < 0xC0000:
                    parts.append(chr(code_point))
            else:
                parts.append(random.choice(pieces))
        texts.append("".join(parts))
    return texts


def vocabulary_texts(random, count, vocabulary):
    """Texts of random tokens: pieces that meet others than they were trained to."""
    plain = [text for text, kind in zip(vocabulary["tokens"], vocabulary["token_type"])
             if kind in (NORMAL, USER_DEFINED)]
    return ["".join(random.choice(plain) for _ in range(random.randrange(1, 12)))
            .replace(SPACE_MARK, " ") for _ in range(count)]


def every_code_point():
    """Each code point between letters, so that its class shows in the pieces."""
    return ["a %cb  %c1" % (c, c) for c in range(0x110000)
            if not 0xD800 <= c < 0xE000 and (c < 0x32000 or c >= 0xE0000) and c < 0xE0200]


@functools.lru_cache(maxsize=1)
def gguf_vocabulary(path):
    """What the metadata of a GGUF file says of its tokenizer, by the ends of the keys."""
    from gguf import GGUFReader
    start = "tokenizer.ggml."
    return {key[len(start):]: field.contents()
            for key, field in GGUFReader(path).fields.items() if key.startswith(start)}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The rule of Llama 3, with the most number characters of one piece.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def tokenizers_reference(vocabulary):
    """Function (texts, special) -> ids, of the `tokenizers` package."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
    tokens, kinds, merges, pre = (vocabulary[key]
                                  for key in ("tokens", "token_type", "merges", "pre"))

    def build(special):
        model = models.BPE({text: i for i, text in enumerate(tokens)},
                           [tuple(merge.split(" ")) for merge in merges],
                           ignore_merges=pre == "llama-bpe")
        tokenizer = Tokenizer(model)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if pre == "gpt-2":
            tokenizer.pre_tokenizer = byte_level
        elif pre == "default":
            rules = [Regex(r"[\p{P}\$\+<=>\^~\|]+"), Regex(GPT2), Regex(r"\p{N}+"),
                     Regex("[0-9][0-9][0-9]")]
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Split(rule, "isolated") for rule in rules] +
                [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        elif pre in ("llama-bpe", "qwen2"):
            rule = Regex(LLAMA3 % (3 if pre == "llama-bpe" else 1))
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(rule, "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        else:
            isolate = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([isolate, byte_level])
        wanted = (CONTROL, USER_DEFINED) if special else (USER_DEFINED,)
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)
                                      for text, kind in zip(tokens, kinds) if kind in wanted])
        return tokenizer

    built = {0: build(False), 1: build(True)}

    def encode(texts, special):
        rows = built[special].encode_batch(texts, add_special_tokens=False)
        return [row.ids for row in rows]
    return encode


def sentencepiece_reference(vocabulary):
    """The same of the `sentencepiece` package. It has no parsing of special tokens: where they are
    asked for they count as user-defined, which are found in any text."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    def build(special):
        model = sentencepiece_model_pb2.ModelProto()
        model.trainer_spec.model_type = model.trainer_spec.BPE
        model.trainer_spec.byte_fallback = BYTE in vocabulary["token_type"]
        for key, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            token = vocabulary.get(name + "_token_id", -1)
            setattr(model.trainer_spec, key + "_id", token)
            if token >= 0:
                setattr(model.trainer_spec, key + "_piece", vocabulary["tokens"][token])
        model.normalizer_spec.name = "identity"
        model.normalizer_spec.add_dummy_prefix = bool(vocabulary.get("add_space_prefix", True))
        model.normalizer_spec.remove_extra_whitespaces = False
        unknown = vocabulary["unknown_token_id"]
        for i, (text, score, kind) in enumerate(zip(vocabulary["tokens"], vocabulary["scores"],
                                                    vocabulary["token_type"])):
            if i == unknown:
                kind = 2
            elif kind == CONTROL and special:
                kind = USER_DEFINED
            model.pieces.add(piece=text.replace(" ", SPACE_MARK), score=score, type=kind)
        return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

    built = {0: build(False), 1: build(True)}

    def encode(texts, special):
        return built[special].encode(texts)
    return encode


def references_of(path):
    """[(label, function)] for the vocabulary of a GGUF file."""
    vocabulary = gguf_vocabulary(path)
    if vocabulary["model"] == "llama":
        found = [("sentencepiece", sentencepiece_reference(vocabulary))]
    else:
        found = [("tokenizers", tokenizers_reference(vocabulary))]
    llama = llama_cpp_reference(path)
    return found + ([("llama.cpp", llama)] if llama else [])


def known_differences(vocabulary):
    """Function (label, text, special): whether the reference is known to leave the way in which the
    vocabulary was made."""
    if vocabulary["model"] != "llama":
        return lambda label, text, special: False
    kinds = list(zip(vocabulary["tokens"], vocabulary["token_type"]))
    # llama.cpp counts this one as a control token, whatever the file says.
    end_is_tag = ("</s>", USER_DEFINED) in kinds
    user_defined = [text for text, kind in kinds if kind == USER_DEFINED]
    special_tokens = [text for text, kind in kinds if kind in (2, CONTROL)] + user_defined
    leads = vocabulary.get("add_space_prefix", True)

    def is_known(label, text, special):
        if label == "llama.cpp":
            # It looks for user-defined tokens before it takes the mark for a space.
            return SPACE_MARK in text or end_is_tag and "</s>" in text
        # This one leads the whole text with a space and no more, and cannot be asked for <unk>.
        found = special_tokens if special else user_defined
        return special and "<unk>" in text or leads and any(token in text for token in found)
    return is_known


def llama_cpp_reference(path):
    """The same of llama.cpp, or None where llama-cpp-python is not installed."""
    try:
        from llama_cpp import Llama
    except ImportError:
        return None
    llama = Llama(model_path=path, vocab_only=True, verbose=False)

    def encode(texts, special):
        return [llama.tokenize(text.encode("utf-8"), add_bos=False, special=bool(special))
                for text in texts]
    return encode
