# SPDX-License-Identifier: Apache-2.0
"""Reference tokenizers and texts for check_tokenizer.py and make_tokenizer_goldens.py."""

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


def every_code_point():
    """Each code point between letters, so that its class shows in the pieces."""
    return ["a %cb  %c1" % (c, c) for c in range(0x110000)
            if not 0xD800 <= c < 0xE000 and (c < 0x32000 or c >= 0xE0000) and c < 0xE0200]


def gguf_vocabulary(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    return tuple(fields["tokenizer.ggml." + key].contents()
                 for key in ("tokens", "token_type", "merges", "pre"))


# The rule of Llama 3, with the most number characters of one piece.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def tokenizers_reference(path):
    """Function (texts, special) -> ids, of the `tokenizers` package."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
    tokens, kinds, merges, pre = gguf_vocabulary(path)

    def build(special):
        model = models.BPE({text: i for i, text in enumerate(tokens)},
                           [tuple(merge.split(" ")) for merge in merges],
                           ignore_merges=pre == "llama-bpe")
        tokenizer = Tokenizer(model)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if pre == "gpt-2":
            tokenizer.pre_tokenizer = byte_level
        elif pre in ("llama-bpe", "qwen2"):
            rule = Regex(LLAMA3 % (3 if pre == "llama-bpe" else 1))
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(rule, "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        else:
            isolate = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([isolate, byte_level])
        wanted = (3, 4) if special else (4,)
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)
                                      for text, kind in zip(tokens, kinds) if kind in wanted])
        return tokenizer

    built = {0: build(False), 1: build(True)}

    def encode(texts, special):
        rows = built[special].encode_batch(texts, add_special_tokens=False)
        return [row.ids for row in rows]
    return encode


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
