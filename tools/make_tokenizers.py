#!/usr/bin/env python3
"""Trains the small tokenizers of test/tokenizers with PyPI's `tokenizers`.

One folder for each style: the same steps, flags and kinds of added tokens as the tokenizer.json of
a model family, with a vocabulary of some hundred tokens learnt from the text in this script. With
the pinned package the files are always the same, byte for byte.

    make/bin/python tools/make_tokenizers.py [STYLE ...]
"""

import io
import json
import sys
import tempfile
import unicodedata
from pathlib import Path

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

OUT = Path(__file__).resolve().parent.parent / "test" / "tokenizers"
PINNED = "0.23.3"
MOST = 60_000  # maximum bytes of a file

# ---- text to learn from: our own sentences -------------------------------------------------------

TEXT = [
    "The cache keeps the rows of every token that the model has already seen.",
    "When the next question begins with the same words, nothing is computed twice.",
    "She'll say that it isn't fair; we've heard it, they're late and I'm sure you'd agree.",
    "A train leaves the station at 07:45 and arrives 128 minutes later, 3.14 km further on.",
    "Ein Zug fährt um 7 Uhr ab und kommt später an, weil die Strecke größer geworden ist.",
    "Über den Dächern hängen graue Wolken, und die Straßen glänzen vom Regen.",
    "Le train part à sept heures; l'été dernier, il arrivait déjà en retard, hélas.",
    "El año pasado llovió mucho, pero mañana hará sol y iremos a la montaña.",
    "Поезд отправляется утром, а вечером мы будем дома и выпьем чаю.",
    "Το τρένο φεύγει το πρωί και φτάνει αργά το βράδυ.",
    "火车早上出发，晚上到达。今天的天气很好，我们去山上走走。",
    "電車は朝に出て、夜に着きます。今日は天気がいいので、山へ行きましょう。",
    "기차는 아침에 떠나서 밤에 도착합니다. 오늘은 날씨가 좋습니다.",
    "القطار يغادر في الصباح ويصل في المساء.",
    "הרכבת יוצאת בבוקר ומגיעה בערב.",
    "รถไฟออกตอนเช้าและถึงตอนเย็น",
    "ट्रेन सुबह चलती है और शाम को पहुँचती है।",
    "Good morning 😀 and good night 🌙, says the family 👨‍👩‍👧 from 🇩🇪 with a 👍🏽.",
    "def add(a, b):\n    return a + b\n\n\nclass Row:\n    def __init__(self, n):\n"
    "        self.n = n\n        for i in range(n):\n            print(i, n - i)\n",
    "int main(void) {\n\tfor (int i = 0; i < 10; i++) {\n\t\tprintf(\"%d\\n\", i);\n\t}\n"
    "\treturn 0;\n}\n",
    "SELECT name, count(*) FROM rows WHERE length >= 1024 GROUP BY name;",
    "{\"model\": {\"layers\": 32, \"heads\": 8, \"theta\": 10000.0}, \"tags\": [1, 2, 3]}",
    "# Heading\n\n- first item\n- second item\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "x = 1; y = 22; z = 333; w = 4444; v = 55555; big = 1234567890",
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 42\r\n\r\n",
    "THE LAST LINE IS LOUD, CamelCase and snake_case_names and kebab-case-names too.",
]
CORPUS = TEXT * 4
# Without the scripts whose characters should be unknown: bytes or [UNK].
FEW = [t for t in CORPUS if not any("\u0590" <= c < "\u1000" or c >= "\U00010000" for c in t)]

# ---- the expressions of the families -------------------------------------------------------------

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?"
         r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTIONS + "?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def plain(text, **flags):
    """An added token that is not special."""
    return AddedToken(text, special=False, normalized=flags.pop("normalized", False), **flags)


def special(text, **flags):
    """A special token."""
    return AddedToken(text, special=True, normalized=flags.pop("normalized", False), **flags)


def train(tokenizer, size, first=(), alphabet=(), corpus=None):
    """Learn merges from the corpus; `first` get the lowest ids."""
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(first), initial_alphabet=list(alphabet),
        show_progress=False)
    tokenizer.train_from_iterator(corpus or CORPUS, trainer)
    return tokenizer


def template(tokenizer, single):
    """A post-processor with the ids that the tokenizer has."""
    names = [w for w in single.split() if not w.startswith("$")]
    return processors.TemplateProcessing(
        single=single, pair=single + " $B:1",
        special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])


# ---- byte-level styles ---------------------------------------------------------------------------

def byte_level(pattern, size, normalizer=None):
    """Split by an expression, then bytes."""
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return train(t, size, alphabet=pre_tokenizers.ByteLevel.alphabet())


def llama3():
    """Llama-3: groups of three digits, whole words before merges, a template with one id."""
    t = byte_level(LLAMA3, 900)
    t.add_special_tokens([special(f"<|{n}|>") for n in (
        "begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id")])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), template(t, "<|begin_of_text|> $A")])
    return t, {"ignore_merges": True}


def qwen2():
    """Qwen2: NFC, single digits, special and ordinary added tokens."""
    t = byte_level(QWEN2, 900, normalizers.NFC())
    t.add_special_tokens([special(f"<|{n}|>") for n in ("endoftext", "im_start", "im_end")])
    t.add_tokens([plain("<tool_call>"), plain("</tool_call>"), plain("<think>"),
                  plain("</think>")])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, {}


def gpt2():
    """GPT-2: ByteLevel with its own expression and a prefix space; strips around a mask token."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    t.decoder = decoders.ByteLevel()
    train(t, 700, ["<|endoftext|>"], pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens([special("<mask>", lstrip=True)])
    t.add_tokens([plain("word", single_word=True), plain("  "), plain("Zug", normalized=True)])
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 0), ("<|endoftext|>", 0),
                                                    trim_offsets=False)
    return t, {}


def o200k():
    """GPT-4o and gpt-oss: words by case, many added tokens, ids with a gap before them."""
    t = byte_level(O200K, 1000)
    t.add_special_tokens([special(f"<|{n}|>") for n in (
        "startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message",
        "call")])
    return t, {"ignore_merges": True}


# ---- styles with ▁ and byte tokens ---------------------------------------------------------------

def sentencepiece(size, first, split):
    """Merges learnt from words with ▁ before them; the vocabulary begins like SentencePiece's."""
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.pre_tokenizer = split
    return train(t, size, [*first, *BYTES], corpus=FEW)


def finish(t, first):
    """Byte tokens are part of the vocabulary, not added tokens."""
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in first]
    return Tokenizer.from_str(json.dumps(state))


METASPACE = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
LEGACY = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def llama_like(size, first):
    """Prepend and Replace as normalizers, no pre-tokenizer, and a decoder that strips a space."""
    t = finish(sentencepiece(size, first, METASPACE), first)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([*LEGACY, decoders.Strip(" ", 1, 0)])
    return t


def llama2():
    """Llama-2 as originally converted."""
    t = llama_like(1000, ["<unk>", "<s>", "</s>"])
    t.post_processor = template(t, "<s> $A")
    return t, {}


def phi3():
    """Phi-3: like Llama-2, with added tokens that include the white space after them."""
    t = llama_like(800, ["<unk>", "<s>", "</s>"])
    t.add_special_tokens([special("<|endoftext|>"), special("<|assistant|>", rstrip=True),
                          special("<|system|>", rstrip=True), special("<|end|>", rstrip=True),
                          special("<|user|>", rstrip=True)])
    t.add_tokens([plain("</s>", rstrip=True), plain("haus", normalized=True, single_word=True)])
    t.post_processor = template(t, "<s> $A")
    return t, {}


def mistral():
    """Llama-2 and Mistral as converted today: Metaspace replaces the normalizers."""
    t = finish(sentencepiece(1000, ["<unk>", "<s>", "</s>"], METASPACE), ["<unk>", "<s>", "</s>"])
    t.add_special_tokens([special("[INST]"), special("[/INST]")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([*LEGACY, decoders.Strip(" ", 1, 0)])
    t.post_processor = template(t, "<s> $A </s>")
    return t, {}


def gemma():
    """Gemma: spaces replaced, then a split at spaces, of which there are none left; runs of white
    space added."""
    first = ["<pad>", "<eos>", "<bos>", "<unk>"]
    t = finish(sentencepiece(1000, first, pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="never")), first)
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence(LEGACY)
    t.add_special_tokens([special("<start_of_turn>"), special("<end_of_turn>")])
    t.add_tokens([plain("\n\n"), plain("\n\n\n"), plain("▁▁"), plain("▁▁▁▁"), plain("<table>")])
    t.post_processor = template(t, "<bos> $A")
    return t, {}


# ---- unigram models ------------------------------------------------------------------------------

def charsmap():
    """A table of characters as compiled by SentencePiece: NFKC of some blocks, pairs of a letter
    and a mark, white space, control characters mapped to nothing, and an entry that is a prefix of
    another one."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    texts = [chr(c) for block in ((0xa0, 0x180), (0x2000, 0x2070), (0x2150, 0x2190), (0x3000, 0x3040),
                                  (0xfb00, 0xfb07), (0xff00, 0xffa0)) for c in range(*block)]
    texts += [a + m for a in "AEIOUaeioun" for m in "\u0300\u0301\u0308\u030a"]
    rules = {t: unicodedata.normalize("NFKC", t) for t in texts}
    rules.update({chr(c): "" for c in (*range(1, 9), *range(14, 32), 0x7f, 0x200b, 0xfeff)})
    rules.update({c: " " for c in "\t\n\r\u2028\u0085"})
    rules.update({"q": "k", "q\u0323": "x", "℃": "degrees Celsius"})
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for source, target in sorted(rules.items()):
            if source != target:
                f.write("\t".join(" ".join(f"{ord(c):X}" for c in t) for t in (source, target)) + "\n")
        f.flush()
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(FEW), model_writer=out, vocab_size=400, hard_vocab_limit=False,
            normalization_rule_tsv=f.name, minloglevel=2)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def unigram(size, first, split, unknown="<unk>"):
    """Tokens with scores, learnt from words with ▁ before them."""
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = split
    t.train_from_iterator(FEW, trainers.UnigramTrainer(
        vocab_size=size, special_tokens=first, unk_token=unknown, show_progress=False))
    return t


def t5():
    """T5: SentencePiece's table and its white space, sentinel tokens that strip, an end token."""
    t = unigram(900, ["<pad>", "</s>", "<unk>"], METASPACE)
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), "▁")])
    t.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    t.add_special_tokens([special(f"<extra_id_{i}>", lstrip=True, rstrip=True) for i in range(3)])
    t.post_processor = template(t, "$A </s>")
    return t, {}


def albert():
    """ALBERT: first words and then ▁, bytes for unknown characters, two ids around the text."""
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), METASPACE])
    t = unigram(700, ["<pad>", "<unk>", "[CLS]", "[SEP]", *BYTES], split)
    t = finish(t, ["<pad>", "<unk>", "[CLS]", "[SEP]"])
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    t.decoder = decoders.Sequence([
        decoders.ByteFallback(), decoders.Metaspace(replacement="▁", prepend_scheme="always")])
    t.post_processor = template(t, "[CLS] $A [SEP]")
    return t, {"byte_fallback": True}


# ---- steps that few models use -------------------------------------------------------------------

def mixed():
    """All other supported steps, in one pipeline."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    t.normalizer = normalizers.Sequence([
        normalizers.Strip(), normalizers.NFKC(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r"\s+"), " "), normalizers.NFD()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex("[aeiou]+"), "merged_with_next"),
        pre_tokenizers.Split("th", "removed"), pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Metaspace(replacement="_", prepend_scheme="always")])
    t.decoder = decoders.Metaspace(replacement="_", prepend_scheme="always")
    train(t, 400, ["[UNK]", "[CLS]", "[SEP]"], corpus=FEW)
    t.add_tokens([AddedToken("Über", normalized=True, single_word=True),
                  AddedToken("<sep>", normalized=True, lstrip=True, rstrip=True)])
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return t, {}


STYLES = {"llama3": llama3, "qwen2": qwen2, "gpt2": gpt2, "o200k": o200k, "llama2": llama2,
          "phi3": phi3, "mistral": mistral, "gemma": gemma, "t5": t5,
          "albert": albert, "mixed": mixed}
OLD_MERGES = {"gpt2", "llama2"}  # "a b" in place of ["a", "b"]
UNREACHED = 60  # tokens that no merge produces: only ignore_merges finds them, as in Llama-3


def write(style):
    """Make a tokenizer and write its file."""
    tokenizer, changes = STYLES[style]()
    state = json.loads(tokenizer.to_str())
    state["model"].update(changes)
    if changes.get("ignore_merges"):
        del state["model"]["merges"][-UNREACHED:]
    if style in OLD_MERGES:
        state["model"]["merges"] = [" ".join(m) for m in state["model"]["merges"]]
    text = json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert len(text.encode()) < MOST, f"{style}: {len(text.encode())} bytes"
    Tokenizer.from_str(text)
    (OUT / style).mkdir(parents=True, exist_ok=True)
    (OUT / style / "tokenizer.json").write_text(text, encoding="utf-8")
    print(f"{style}: {tokenizer.get_vocab_size()} tokens, {len(text.encode())} bytes")


def main():
    """All styles, or the named ones."""
    if tokenizers.__version__ != PINNED:
        sys.exit(f"tokenizers {tokenizers.__version__} is installed; this needs {PINNED}")
    for style in sys.argv[1:] or STYLES:
        write(style)


if __name__ == "__main__":
    main()
