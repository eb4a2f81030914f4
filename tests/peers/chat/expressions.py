"""Random Jinja expressions and statements over a few variables, for comparison with Jinja."""

import random
import re

VARIABLES = {
    "s": "Hello, World", "empty": "", "u": "Grüße, ΟΔΟΣ ὈΔΥΣΣΕΎΣ ǆ ß İ 世界 🙂\u00a0", "lines": " a\nb\r\nc\n\n",
    "n": 7, "zero": 0, "neg": -3, "f": 2.5, "g": -0.125, "big": 1e16, "t": True, "no": False, "nil": None,
    "xs": [3, 1, 2], "words": ["b", "A", "c", "a"], "mixed": [1, "1", 1.0, True, None], "none_here": [],
    "nested": [[1, 2], [3], []], "d": {"a": 1, "b": [1, 2], "c": "x", "items": 5},
    "users": [{"name": "Zoë", "age": 3}, {"name": "amy", "age": 20}, {"name": "Bob"}],
    "tags": "<b>&'\"",
}
# What makes a value of each kind: variables and literals, and forms over parts in angle brackets.
ATOMS = {
    "text": ["s", "empty", "u", "lines", "tags", "''", "'a'", "'Hello'", "', '", "'l'", "'ß'", "'12'", "' 3.5 '",
             "'name'", "'a,b'", "\"it's\"", "'é\\t'", "'x y  z'", "'-42'", "'1e3'", "'ΑΣ'", "\"\\u00e9'\""],
    "number": ["n", "zero", "neg", "f", "g", "big", "t", "no", "0", "1", "2", "3", "5", "10", "0.5", "1.0", "2.5", "1e3",
               "0.1", "3.14159", "1e20", "1e-7", "9007199254740993"],
    "list": ["xs", "words", "none_here", "users", "nested", "mixed", "[]", "[1]", "['b', 'B', 'a']", "(1, 2)", "()",
             "(range(4)|list)", "[none, true]"],
    "dict": ["d", "{}", "{'a': 1}", "users[0]", "{'B': 1, 'a': 2, 'C': [1]}", "dict(x=1, y='z')"],
    "bool": ["t", "no", "true", "false"],
    "any": ["nil", "none", "undefined_name", "users[2].age", "d.zz"],
}
FORMS = {
    "text": ["<text> + <text>", "<text> ~ <any>", "<any> ~ <any>", "<text> * <small>", "<text>|trim", "<text>|upper",
             "<any>|lower", "<text>|title", "<text>|capitalize", "<any>|string", "<text>|safe", "<any>|tojson",
             "<any>|tojson(indent=<small>)", "<any>|tojson(sort_keys=true, ensure_ascii=true)",
             "<any>|tojson(separators=(',', ':'))", "<list>|join", "<list>|join(<text>)", "<text>|join('-')",
             "users|join(', ', attribute='name')", "<text>|indent", "<text>|indent(2, true, true)",
             "<text>|indent('> ', blank=<bool>)", "<text>|replace('l', <any>)", "<text>|replace('l', <any>, 1)",
             "<text>|first", "<text>|last", "<text>[<index>]", "<text>[<cut>]", "<text>.strip()", "<text>.strip(<text>)",
             "<text>.lstrip()", "<text>.rstrip('d\\n')", "<text>.upper()", "<text>.lower()", "<text>.title()",
             "<text>.capitalize()", "<text>.replace('a', <text>)", "<text>.join(words)", "<text>.join(<list>)",
             "'%s %s'|format(<any>, <any>)",
             "'{} {{{}}}'.format(<any>, <any>)", "'{1}:{0}'.format(<text>, <any>)", "'{a}{b:d}'.format(b=<small>, a=<any>)", "<text>|default(<text>)", "<list>|map('string')|join('+')"],
    "number": ["<number> + <number>", "<number> - <number>", "<number> * <number>", "<small> % <small>", "-<number>",
               "<any>|length", "<any>|int", "<any>|int(<number>)", "<list>|first", "<list>[<index>]"],
    "list": ["[<any>, <any>]", "(<any>, <any>)", "<list> + <list>", "<list>[<slice>]", "<list>|list", "<text>|list",
             "<list>|sort", "<list>|sort(reverse=<bool>)", "words|sort(case_sensitive=<bool>)", "users|sort(attribute='name')",
             "<list>|unique|list", "<list>|reverse|list", "<list>|map('upper')|list", "<list>|map('length')|list",
             "users|map(attribute='age')|list", "users|map(attribute='age', default=<any>)|list", "<list>|select|list",
             "<list>|reject|list", "<list>|select('string')|list", "<list>|reject('none')|list",
             "<list>|select('in', <list>)|list", "users|selectattr('age')|list", "users|rejectattr('age')|list",
             "users|selectattr('age', 'defined')|selectattr('age', '>', <small>)|list", "<dict>|items|list",
             "<dict>.items()|list", "<dict>|list", "<dict>|dictsort", "<dict>|dictsort(reverse=true)",
             "<dict>.values()|list", "<dict>.keys()|list", "<text>.split()", "<text>.split(<text>)",
             "<text>.split(<text>, <small>)", "<text>.split(none, 1)", "range(<small>)|list", "range(<small>, <small>)|list",
             "range(9, 0, -<small>)|list", "<list>|default([], true)", "nested|map('first')|list"],
    "dict": ["{'k': <any>, <text>: <any>}", "dict(<dict>, a=<any>)", "{<number>: <any>, 1: 2}",
             "users|selectattr('name', 'equalto', <text>)|first", "users|first", "users|last"],
    "bool": ["<any> == <any>", "<any> != <any>", "<number> < <number>", "<text> <= <text>",
             "<number> < <number> <= <number>", "<any> in <list>", "<text> in <text>", "<any> not in <dict>", "not <any>",
             "<any> is defined", "<any> is not none", "<any> is string", "<any> is number", "<any> is integer",
             "<any> is float", "<any> is boolean", "<any> is mapping", "<any> is sequence", "<any> is iterable",
             "<any> is true", "<any> is false", "<any> is undefined", "<small> is odd", "<small> is even", "<any> is eq <any>",
             "<number> is lt(<number>)", "<any> is in <list>", "<text>.startswith(<text>)",
             "<text>.endswith((<text>, <text>))"],
    "any": ["<any> and <any>", "<any> or <any>", "<any> if <bool> else <any>", "<any> if <any>", "<any>|default(<any>)",
            "<any>|d(<any>, true)", "<dict>.get(<text>)", "<dict>.get('a', <any>)", "<dict>.a", "<dict>[<text>]", "<any>.name",
            "<list>|first", "<list>|last", "<any>[<index>]", "<any>.items is defined", "<list>.append(1)",
            "<dict>.update is defined", "loop.index",
            "<any>|list", "<any>|length", "<any> + <any>", "<any>|upper"],
}
SMALL = ["0", "1", "2", "3", "4", "7", "n", "12"]
INDICES = ["0", "1", "-1", "2", "-2", "9", "n", "-9"]
CUTS = [":", "1:", ":2", "-2:", ":-1", "1:3", "n:", "nil:2", "-100:100"]
SLICES = [":", "1:", ":2", "-2:", ":-1", "::-1", "::2", "1:3", "5:1:-2", "n:", "nil:2", "-100:100", "::-3"]


class Generator:
    """Expressions of a bounded depth from one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def expression(self, depth, kind="any"):
        choose = self.random.choice
        if kind == "small":
            return choose(SMALL)
        if kind == "index":
            return choose(INDICES)
        if kind == "cut":
            return choose(CUTS)
        if kind == "slice":
            return choose(SLICES)
        if kind == "any" and self.random.random() < 0.8:
            kind = choose(["text", "text", "number", "list", "dict", "bool"])
        elif self.random.random() < 0.03:
            kind = "any"  # now and then a value of the wrong kind
        if depth == 0 or self.random.random() < 0.15:
            return choose(ATOMS[kind])
        form = choose(FORMS[kind])
        return "(" + re.sub("<([a-z]+)>", lambda part: self.expression(depth - 1, part[1]), form) + ")"

    def layout(self):
        """A template of little but tags, white space and the signs that control it."""
        choose = self.random.choice
        text = lambda: "".join(choose(["\n", " ", "  ", "\t", "a", "b ", "\r\n", "\r", "\n\n", "\u00a0", "{", "}", "%", "#", "",
                                       "\v", "\u2028"]) for _ in range(self.random.randrange(4)))
        sign = lambda: choose(["", "", "-", "+"])
        minus = lambda: choose(["", "", "-"])
        tag = lambda body: "{%" + sign() + choose([" ", "", "\n "]) + body + choose([" ", "", "\n"]) + sign() + "%}"
        result = ""
        for _ in range(self.random.randrange(1, 6)):
            kind = self.random.randrange(8)
            result += text()
            if kind == 0:
                result += "{{" + minus() + " 'x' " + minus() + "}}"
            elif kind == 1:
                result += "{#" + sign() + choose([" c ", "", "\n", " - "]) + sign() + "#}"
            elif kind == 2:
                result += tag("if no") + text() + tag("else") + text() + tag("endif")
            elif kind == 3:
                result += tag("if t") + text() + tag("endif")
            elif kind == 4:
                result += tag("for i in [1, 2]") + text() + "{{ i }}" + text() + tag("endfor")
            elif kind == 5:
                result += tag("set v = 1")
            elif kind == 6:
                result += tag("raw") + text() + choose(["{{ x }}", "{% if %}", ""]) + text() + tag("endraw")
            else:
                result += tag("set v") + text() + tag("endset") + "[{{ v }}]"
        return result + text()

    def template(self, depth=3):
        kind = self.random.randrange(8)
        if kind == 0:
            return (f"{{% for x in {self.expression(depth, 'list')} %}}[{{{{ loop.index }}}}/{{{{ loop.length }}}}"
                    f"{{{{ x }}}}{{{{ loop.last }}}}{{{{ loop.previtem }}}}{{{{ loop.nextitem }}}}]"
                    f"{{% else %}}none{{% endfor %}}")
        if kind == 1:
            return (f"{{% for x in {self.expression(depth, 'list')} if {self.expression(depth - 1)} %}}{{{{ x }}}}"
                    f"{{% if loop.index > 2 %}}{{% break %}}{{% endif %}};{{% endfor %}}")
        if kind == 2:
            return (f"{{% set ns = namespace(v={self.expression(depth - 1)}) %}}{{% for x in {self.expression(1, 'list')} %}}"
                    f"{{% set ns.v = [ns.v, x] %}}{{% endfor %}}{{{{ ns.v }}}}")
        if kind == 3:
            return (f"{{% macro m(a, b={self.expression(1)}) %}}<{{{{ a }}}}|{{{{ b }}}}>{{% endmacro %}}"
                    f"{{{{ m({self.expression(depth - 1)}) ~ m({self.expression(1)}, b=2) }}}}")
        if kind == 4:
            return (f"{{% if {self.expression(depth)} %}}yes{{% elif {self.expression(1)} %}}maybe{{% else %}}no"
                    f"{{% endif %}}")
        return f"{{{{ {self.expression(depth)} }}}}"
