"""Random strings of everything that tokenizers trip over."""

import random
import unicodedata

# Unicode versions differ between libraries: Hugging Face normalises by Unicode 9, PCRE2, utf8proc
# and Oniguruma know newer ones. Only characters that all of them know take part: those of Unicode
# 3.2, and from later versions up to 9 these.
LATER = [(0x1B00, 0x1B4B), (0xA4D0, 0xA4FF), (0xA722, 0xA788), (0x1F1E6, 0x1F1FF),
         (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6C5), (0x1F910, 0x1F91E),
         (0x1F980, 0x1F991), (0x20000, 0x2A6D6)]

WORDS = """the of and to in a is that it was for on are as with his they at be this from I have or by
one had not but what all were when we there can an your which their said if do will each about how up
out them then she many some so these would other into has more her two like him see time could no make
than first been its who now people my made over did down only way find use may water long little very
after words called just where most know don't I'll we've he's THE DON'T It's camelCase snake_case
http://example.com/a?b=c&d=%20 user@example.com 3.14159 1,000,000 0xDEADBEEF x86_64 C++ naïve café
Straße İstanbul größer señor œuvre Ærøskøbing Москва говорить привет Ελλάδα ελληνικά שלום عربي मराठी
हिन्दी தமிழ் ไทย 日本語 ひらがな カタカナ 中文字符 한국어 조선말 Tiếng Việt ąćęłńóśźż def return while""".split()
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "🏳️‍🌈", "1️⃣", "🤘", "☺", "🤝"]
MARKS = ["\u0301", "\u0316", "\u0327", "\u0308", "\u0345", "\u0323", "\u20DD", "\u3099", "\u0E49",
         "\u093C", "\u05BC", "\u05C1", "\u064B"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00A0", "\u3000", "\u2003", "\u200B",
          "\u2028", "\x0b", "\x85", "\u202F", "\ufeff", "\u1680"]
# What normalisers and SentencePiece treat in a way of their own.
ODD = ["▁", "▁▁", "_", "ﬁ", "ﬀ", "①", "㍿", "ｆｕｌｌ", "ﾊﾝｶｸ", "Å", "Ω", "ﬃ", "½", "ﷺ", "각", "가",
       "\u1100\u1161\u11a8", "e\u0301", "ﬁ\u0301", "\u0344", "\u0958", "\u212b", "�", "\u200d", "\u200c",
       "\u00ad", "<0x0A>", "<0xE4>", "Ġ", "Ċ", "…", "“”", "—", "''", "``", "'s", "'LL", "'ſ", "K"]


def _alphabet():
    old = unicodedata.ucd_3_2_0
    points = [c for c in range(1, 0x30000)
              if not 0xD800 <= c <= 0xDFFF and old.category(chr(c)) not in ("Cn", "Co", "Cs")]
    for first, last in LATER:
        points += range(first, last + 1)
    return points


def _piece(rng, alphabet, small, extra):
    kind = rng.random()
    if kind < 0.30:
        return rng.choice(WORDS) + rng.choice(["", " ", " ", " "])
    if kind < 0.42:
        return rng.choice(SPACES)
    if kind < 0.50:
        return "".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randrange(1, 8)))
    if kind < 0.56:
        return str(rng.randrange(10 ** rng.randrange(1, 9)))
    if kind < 0.62:
        return rng.choice(EMOJI)
    if kind < 0.68:
        return rng.choice("aeiouqसक") + "".join(rng.choices(MARKS, k=rng.randrange(1, 4)))
    if kind < 0.74:
        return rng.choice(ODD)
    if kind < 0.80:
        return "".join(chr(rng.choice(small)) for _ in range(rng.randrange(1, 6)))
    if kind < 0.88:
        return "".join(chr(rng.choice(alphabet)) for _ in range(rng.randrange(1, 5)))
    if kind < 0.92:
        return chr(rng.randrange(1, 0x20))
    if kind < 0.94:
        return rng.choice("aA.-=\u00e9中") * rng.randrange(1, 40)
    return rng.choice(extra)


def random_strings(count, seed, extra):
    """`extra` are texts that the tokenizer treats specially; parts of them occur too."""
    rng = random.Random(seed)
    alphabet = _alphabet()
    small = [c for c in alphabet if c < 0x2000]
    extra = extra + [text[:-1] for text in extra if len(text) > 1] or [""]
    return ["".join(_piece(rng, alphabet, small, extra) for _ in range(rng.randrange(0, 14)))
            for _ in range(count)]
