"""Snippets of the template language: each feature in the conformance file of make_templates.py, and
a generator of random ones."""

VARIABLES = {
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "yes": True,
    "no": False,
    "nil": None,
    "s": "Hello World",
    "empty": "",
    "uni": "Straße – ΣΑΣ 😀 naïve",
    "multi": "one\ntwo\r\nthree\n\nfive",
    "pad": "  \t pad me \n ",
    "quote": "it's \"q\" \\ \n \u0001 é \u200b",
    "l": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "nested": [[1, 2], [3, [4, 5]]],
    "none_list": [],
    "d": {"b": 1, "a": [1, 2.0, None], "C": {"x": "y"}},
    "rows": [
        {"name": "x", "v": 3, "tag": {"k": "A"}},
        {"name": "Y", "v": 1, "tag": {"k": "b"}},
        {"name": "z", "v": 2, "tag": {"k": "a"}, "extra": True},
    ],
    "items": {"items": 5, "keys": [1]},
    "floats": [0.1, 1e16, 1e-5, 123456789012345680.0, 1e22, 100.0, -0.0, 1.5e300, 3.0],
    "big": 9007199254740993,
    "html": "<a href='x'>&\"</a>",
}

_EXPRESSIONS = r"""
1
-1
- 1
+ 1
1_000
0x1F
0b101
0o17
1.5
1e3
1.5e-7
1e100
2 ** 3
-2 ** 2
2 ** 3 ** 2
2 ** -1
4 ** 0.5
7 / 2
8 / 2
7 // 2
-7 // 2
7 // -2
7.5 // 2
-7.5 // 2
7 % 3
-7 % 3
7 % -3
-7.5 % 2
7.5 % -2
1 / 0
1 // 0
1 % 0
0.1 + 0.2
1 + 2 * 3
(1 + 2) * 3
10 - 3 - 2
1 + 1.0
true + true
true * 3
3 * 'ab'
'ab' * 0
'ab' * -1
[1, 2] * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 'b'
'a' + 1
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ {'a': 1}
'a' 'b' "c"
1 < 2
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 != 0
1 == 1.0
1 == true
'1' == 1
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 2) >= (1, 2)
[1] == (1,)
{'a': 1} == {'a': 1.0}
none == none
missing == missing2
missing == none
missing < 1
1 in l
9 in l
9 not in l
'ell' in s
'' in ''
'b' in d
1 in d
1 in 5
1 in 'x'
missing in l
1 in missing
not 1
not missing
not not ''
1 and 2
0 and 2
'' or 'x'
none or 0
missing or 'x'
missing and 'x'
1 if yes
1 if no
1 if no else 2
1 if no else 2 if no else 3
(1 if no) is defined
n if n > 5 else 'small'
l[0]
l[-1]
l[5]
l[-4]
l['a']
l[1.0]
s[0]
s[-1]
s[99]
uni[4]
uni[-1]
uni[18]
s[1:3]
s[:3]
s[3:]
s[::-1]
s[::2]
s[-3:]
s[5:2]
s[::0]
uni[2:6]
uni[::-1]
l[::-1]
l[1:]
l[:-1]
l[5:]
l[-2:]
l[::-2]
l[2:0:-1]
l[100:-100:-1]
(1, 2, 3)[1:]
range(5)[1:3] | list
l[:none]
l['a':]
d.b
d['b']
d.zz
d.zz.y
d['zz']['y']
d.C.x
d.get('b')
d.get('q')
d.get('q', 9)
d.keys()
d.values()
d.items()
d.keys() | list
d | list
d.items() | list
items.items
items['items']
items.items() | list
d[1]
d[[1]]
missing
missing.x
missing['x']
missing()
missing + 1
-missing
missing ~ 'x'
missing | length
[missing]
nil.x
nil
[nil, true, 1.0, 'x']
(1,)
()
(1, 2)
1, 2
1,
[1, 2,]
{'a': 1,}
{}
{'a': {'b': [1, (2,)]}}
{1: 2, none: 3, true: 4}
{'a': 1, 'a': 2}
{1: 'a', 1.0: 'b'}
{[1]: 2}
[[], {}, ()]
floats
floats | join(' ')
big
big + 1
big * 1000
1e16
123456789.123456789
1e-4
0.00001
-0.0
1e400
-1e400
1e400 - 1e400
"a\nb\tc\\d\'e\"f"
'\x41\u00e9\U0001F600\101'
'\q\d'
'a\
b'
quote
[quote]
['it\'s']
['a"b\'c']
['é😀\x7f\u2028']
d
rows
nested
range(3)
range(1, 10, 3)
range(10, 0, -3) | list
range(0)
range(3) | length
range(5)[2]
range(5)[-1]
[range(5).start, range(5).stop, range(5)[::2].step]
3 in range(5)
range('a')
range(1, 2, 0)
range(1000000)
dict(a=1, b=2)
dict([['a', 1]])
dict({'a': 1}, b=3)
namespace(a=1).a
namespace(a=1)
namespace(_a=1)
namespace().missing
loop
raise_exception('no')
strftime_now('%%')
cycler('a', 'b').next()
joiner('|')()
s.upper()
s.lower()
uni.upper()
uni.lower()
'ΑΣ ΑΣΑ Σ'.lower()
'İ'.lower() | length
'ﬁn'.upper()
'ß'.capitalize()
s.title()
"they're bill's".title()
"they're bill's" | title
'a　bc\u00a0de' | title
'İstanbul ΑΣ Σ' | title
'foo-bar baz(qux' | title
s.capitalize()
uni.capitalize()
"a'Σ aΣb".capitalize()
s.swapcase()
"ΑΣ ΑΣΑ Α'Σ ßx".swapcase()
pad.strip()
[pad.lstrip(), pad.rstrip()]
'xxaxx'.strip('x')
'xyaxy'.strip('yx')
'xyaxy'.lstrip('yx')
'xyaxy'.rstrip('yx')
'éaé'.strip('é')
' a '.strip(none)
'a'.strip(1)
'a'.strip(chars='a')
s.split()
s.split('o')
s.split('o', 1)
'a,b,,c'.split(',')
'a,b,,c'.split(',', maxsplit=2)
'a,b,c'.split(sep=',')
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
'a.b.c'.rsplit('.', 1)
'a.b.c'.rsplit('.')
''.split()
''.split(',')
'a'.split('')
'aXXbXXc'.split('XX')
'</think>a</think>b'.split('</think>')[-1]
multi.splitlines()
multi.splitlines(true)
'a\n'.splitlines()
s.startswith('He')
s.startswith(('x', 'He'))
s.endswith('ld')
s.endswith(('x', 'y'))
s.startswith('e', 1)
s.startswith('e', 1, 1)
s.startswith(1)
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
'ab'.replace('', '-', 2)
''.replace('', 'x')
s.find('o')
s.rfind('o')
s.find('zz')
s.find('o', 5)
s.find('o', -3)
uni.find('Σ')
s.index('W')
s.index('zz')
s.count('l')
s.count('')
s.count('o', 5)
'-'.join(['a', 'b'])
'-'.join('abc')
'-'.join([1])
'-'.join(d)
'{} and {}'.format(1, 'x')
'{0}{1}{0}'.format('a', 'b')
'{a}-{b}'.format(a=1, b=none)
'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')
'{:05d}|{:x}|{:,}|{:+d}'.format(42, 255, 1234567, 5)
'{:.2f}|{:8.3f}|{:e}|{:g}|{:%}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25)
'{!r}'.format('x')
'{{}}'.format()
'{} {}'.format(1)
'{'.format(1)
'{:*^9}'.format('mid')
'{:d}'.format('x')
'%s and %d' % ('x', 3)
'%5.2f|%-5s|%05d|%x' % (3.14159, 'a', 42, 255)
'%s' % [1, 2]
'%s%%' % 5
'%(a)s' % {'a': 1}
'%r' % 'x'
'%d' % 'x'
'%s' % ()
'x' % 1
'%s %s' % (1,)
'%+d % d' % (1, 2)
'%e %g' % (12345.678, 1e-10)
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'1.2'.isdigit()
''.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
' \n'.isspace()
''.isspace()
'ABC'.isupper()
'abc'.islower()
'Abc Def'.istitle()
'abc'.isascii()
'é'.isascii()
'a\n'.isprintable()
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'a'.center(5, '*')
'ab'.center(5)
'a'.ljust(3) ~ '|'
'a'.rjust(3)
'-42'.zfill(6)
l.index(1)
l.index(9)
l.count(3)
l.append(4)
l.append is defined
l.pop()
l.sort()
d.update({'x': 1})
d.pop('a')
d.clear
d.copy()
d.__class__
s.__class__
s._x
d['__class__']
''.__class__.__mro__
s.nothing
s.upper.x
(1).x
s | upper
pad | trim
'xxaxx' | trim('x')
'xxaxx' | trim(chars='x')
s | lower | title
'hELLO wORLD' | capitalize
l | length
s | length
uni | length
d | count
5 | length
nil | length
l | first
l | last
none_list | first
none_list | last
(none_list | first) is defined
'abc' | first
'abc' | last
d | first
l | join
l | join('-')
l | join('-', attribute='x')
rows | join(',', attribute='name')
rows | join(', ', 'tag.k')
'abc' | join('.')
none_list | join('-')
missing | join('-')
nil | join
missing | default('x')
missing | default
missing | d('y')
'' | default('x')
'' | default('x', true)
nil | default('x')
nil | default('x', boolean=true)
d.zz | default('q')
d.zz.y | default('q')
s | replace('l', 'L')
s | replace('l', 'L', 1)
5 | replace(5, 6)
d | tojson
rows | tojson
floats | tojson
quote | tojson
uni | tojson
uni | tojson(ensure_ascii=true)
quote | tojson(true)
html | tojson
d | tojson(indent=2)
d | tojson(indent=4)
d | tojson(indent=0)
d | tojson(indent='--')
d | tojson(separators=(',', ':'))
d | tojson(sort_keys=true)
{'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true, indent=2)
{} | tojson(indent=2)
[] | tojson(indent=2)
[[], {}] | tojson(indent=2)
(1, 2) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1,): 2} | tojson
missing | tojson
[missing] | tojson
range(3) | tojson
l | map('string') | tojson
1e400 | tojson
'\x7f' | tojson
'\x7f' | tojson(ensure_ascii=true)
'a/b' | tojson
d | tojson(unknown=1)
'abc' | list
range(3) | list
d | list
missing | list
5 | list
5 | string
l | string
nil | string
'5' | int
'5.7' | int
'x' | int
'x' | int(9)
'0x1f' | int(base=16)
'1f' | int(0, 16)
'0b11' | int(base=0)
' 42 ' | int
'1_000' | int
3.9 | int
-3.9 | int
nil | int
l | int
true | int
missing | int
'5' | float
'x' | float
'x' | float(1.5)
'1e3' | float
'inf' | float
nil | float
-5 | abs
-5.5 | abs
'x' | abs
2.5 | round
3.5 | round
-2.5 | round
2.675 | round(2)
2.1 | round(1, 'ceil')
2.19 | round(1, 'floor')
2.4 | round(method='ceil')
42 | round
1234 | round(-2)
1250 | round(-2)
2.5 | round(1, 'x')
1234.5678 | round(2)
'x' | round
l | sort
l | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
words | sort(true, true)
rows | sort(attribute='v') | map(attribute='name') | list
rows | sort(attribute='tag.k') | map(attribute='name') | list
rows | sort(attribute='tag.k,v') | map(attribute='name') | list
rows | sort(attribute='v', reverse=true) | map(attribute='v') | join
[1, 'a'] | sort
'hello' | sort
d | sort
l | unique | list
words | unique | list
words | unique(true) | list
[1, 1.0, true, 2] | unique | list
rows | unique(attribute='tag.k') | map(attribute='name') | list
[[1]] | unique | list
rows | map(attribute='name') | list
rows | map(attribute='tag.k') | join
rows | map(attribute='extra') | list
rows | map(attribute='extra', default='none') | list
nested | map(attribute=0) | list
nested | map('first') | list
words | map('upper') | join(' ')
words | map('replace', 'p', 'q') | list
words | map
words | map('nofilter') | list
l | map('string') | first
l | select | list
[0, 1, '', none, 'a'] | select | list
[0, 1, '', none, 'a'] | reject | list
l | select('odd') | list
l | select('>', 1) | list
l | reject('equalto', 2) | list
l | select('in', [1, 9]) | list
l | select('divisibleby', 3) | list
rows | selectattr('extra') | map(attribute='name') | list
rows | selectattr('extra', 'defined') | list | length
rows | rejectattr('extra') | map(attribute='name') | list
rows | selectattr('v', 'gt', 1) | map(attribute='name') | join
rows | selectattr('name', 'equalto', 'x') | first
rows | selectattr('tag.k', 'eq', 'b') | list | length
rows | selectattr('name', 'in', ['x', 'z']) | map(attribute='v') | sum
rows | selectattr
(rows | selectattr('extra')) is iterable
l | reverse | list
'abc' | reverse
d | reverse | list
(l | reverse | list)[0]
5 | reverse
d | items | list
missing | items | list
l | items
d | dictsort
{'b': 1, 'a': 2, 'C': 0} | dictsort
{'b': 1, 'a': 2, 'C': 0} | dictsort(true)
{'b': 1, 'a': 2, 'C': 0} | dictsort(by='value')
{'b': 1, 'a': 2, 'C': 0} | dictsort(false, 'value', true)
{'b': 1} | dictsort(by='x')
multi | indent
l | indent
nil | indent
nil | map('upper') | list
0 | select | list
no | selectattr('x') | list
1 | select | list
multi | indent(2)
multi | indent(2, true)
multi | indent(2, true, true)
multi | indent('> ', first=true)
'' | indent
html | escape
html | e
html | safe
(html | e) | e
('<' | e) ~ '<'
('<' | e) + '<'
'<' + ('<' | safe)
html | forceescape
(html | safe) is escaped
l | sum
none_list | sum
rows | sum(attribute='v')
l | sum(start=10)
nested | sum(start=[])
['a'] | sum
l | min
l | max
words | min
words | max
rows | max(attribute='v')
none_list | min
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3, 4, 5] | batch(2, 0) | list
[1, 2, 3, 4, 5] | slice(3) | list
[1, 2, 3, 4, 5] | slice(3, 'x') | list
[1, 2, 3, 4] | slice(2, 'x') | list
'a bc, d-e' | wordcount
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(9, end='!', leeway=0)
'foo' | truncate(1)
l | truncate
nil | truncate
d | truncate(3, leeway=0)
l | truncate(3, leeway=-1)
[1, 2, 3, 4] | truncate(3, leeway=0)
'%s-%s' | format('a', 1)
'%(x)s' | format(x=5)
'a' | center(5) ~ '|'
rows | groupby('tag.k') | list
rows | groupby('tag.k', case_sensitive=true) | map('first') | list
rows | groupby('tag.k') | map(attribute='grouper') | list
rows | groupby('tag.k') | map(attribute='list') | map('length') | list
(rows | groupby('tag.k') | list)[0].list[0].name
(rows | groupby('tag.k') | list)[0][:].grouper is defined
d | attr('b')
s | attr('upper')
'a b/c&d' | urlencode
d | urlencode
{'a b': 'é/ &', 2: none} | urlencode
[('a', 1), ['b', 'x y']] | urlencode
['ab', 'cd'] | urlencode
d.items() | urlencode
none_list | urlencode
missing | urlencode
nil | urlencode
l | urlencode
words | urlencode
d | list | urlencode
{'a/b': '/~-_.+'} | urlencode
'x' % range(n)
'%s' % range(n)
'x' % missing
'x' % nil
range(n).index(1)
range(n).index(n)
range(n).count(3)
range(2, 9, 3).count(5.0)
range(n).copy()
[1, 2, 1].index(1, 1)
[1, 2, 1].index(1, -2)
[1, 2, 1].index(1, 1, 2)
[1, 2, 1].index(1, 1, -1)
(1, 2, 1).index(1, 1)
nil[:2]
n[::2]
d[1:]
s[nil:2]
s['a':]
strftime_now('%f') | length
strftime_now('[%z%Z]')
strftime_now('%%f %%z %')
strftime_now('')
strftime_now('%c') | length
n is defined
missing is defined
missing is not defined
missing is undefined
d.zz is defined
d.b is defined
nil is none
nil is not none
missing is none
s is string
n is string
n is number
f is number
yes is number
n is integer
yes is integer
f is integer
f is float
yes is boolean
n is boolean
yes is true
n is true
no is false
d is mapping
l is mapping
l is iterable
n is iterable
s is iterable
nil is iterable
l is sequence
d is sequence
n is sequence
missing is iterable
missing is sequence
range is callable
n is callable
s.upper is callable
4 is even
3 is odd
-1 is odd
9 is divisibleby 3
9 is divisibleby(2)
9 is divisibleby 0
'a' is odd
1 is eq 1
1 is == 1
1 is equalto(1.0)
1 is ne 2
1 is lt 2
2 is gt 1
1 is le 1
1 is ge 2
1 is lessthan 2
1 is greaterthan 2
1 is in [1, 2]
1 is not in [1, 2]
'a' is in 'abc'
'abc' is lower
'ABC' is upper
'Abc' is lower
none is sameas none
true is sameas true
1 is sameas true
'upper' is filter
'nofilter' is filter
'odd' is test
n is defined and n > 3
n is not none and s
n is eq 7 or false
not n is defined
[n is odd, n is even]
n is string is defined
(n is odd) is true
n is nosuchtest
n | nosuchfilter
s | upper | lower | length + 1
-5 | abs
-(5 | string)
- f | round
1 + 2 | string
(1 + 2) | string ~ 'x'
[1, 2] | length > 1
s.split(' ')[0].upper() | lower
d['a'][1]
d.a[0]
d.a.0
rows[0]['tag'].k
rows[-1].name
rows.0.name
l[l[1]]
(l + [4])[-1]
{'a': [1, {'b': 'c'}]}['a'][1].b
'a' if 'a' in 'abc' and not no else 'b'
namespace(x=[1]).x[0]
range(*[1, 4]) | list
dict(**{'a': 1})
'{}-{}'.format(*['a', 'b'])
s.upper(1)
s | default(1, 2, 3)
range()
s.split(foo=1)
"a" in ["a", "b"]
"x" not in ["a", "b"]
[1, 2, 3][1]
"abc"[1]
"abc"["x"]
1.0 is integer
10 ** 18
2 ** 62
7 // 2.0
1e308 * 10
'a' == 'a' == 'a'
1 if
{{ 1 }}
1 +
(1
[1
{'a'
'abc
1 2
a b
.5
1.
foo.
a..b
1 = 2
a = 1
'a' | 
x is
not
;
@
{'a': 1
[1, , 2]
f(1 2)
range(start=1)
d.b.c.d
true
True
TRUE
None
none
null
loop.index
caller()
varargs
0 or ''
[] or {} or ()
'' ~ ''
-'a'
+'a'
1 < 'a'
none + 1
[1, 2] - [1]
{} + {}
'a' - 'b'
{'a': 1} < {'b': 1}
none < none
'%s' % missing
[1, [2, [3]]] | string
((1, 2), (3,)) | list
'é' < 'z'
'😀' > '\uffff'
'a\tb' | tojson
['\n'] 
'ª' is lower
'aʰ' is lower
'ⅷ' is lower
'Ⅷ' is upper
'Ⓐb'.istitle()
'ⓐ'.swapcase()
'ǅ'.swapcase()
none is lower
{s ~ '!': n, s | lower: 2, n + 1: 3}
{none: 1, (1, 2): 2}[1, 2]
{n: 1}[n]
{'a' if yes else 'b': {n > 3: 'big'}[true]}
[1]['x',]
l[]
l[0,]
l[0, 1]
l[1:2, 0]
l[1:2,]
l[:, 1]
l[:::]
l[1:2:1:]
range(10)[2:8:2]
range(10)[::-1]
range(10)[8:2:-3] | list
range(5, 50, 5)[::100]
[nil, nil] | sort
[nil, 1] | sort
[d, d] | sort
[[nil, 2], [nil, 1]] | sort
rows | sort(attribute='tag.nope') | map(attribute='name') | join
[nil, nil] | unique | list
nil in [nil]
nil in [0, false, '']
s.startswith(('x', 1), 99)
s.startswith(1, 99)
s.endswith(none, 99)
s.startswith((), 3)
s.startswith(('',), 11)
'ab'.removeprefix(('a', 'b'))
'a\v\fb\x1cc\x85d\u2028e'.splitlines()
'\r\n\n\r'.splitlines(true)
[1, 1.5, true] | sum
[[1], [2]] | sum
[(1,), (2,)] | sum(start=())
rows | sum('v', 0.5)
"""

_BLOCKS = [
    "a{# c #}b",
    "a\n{# c #}\nb",
    "a {# c -#} b",
    "a {#- c #} b",
    "a {#- c -#} b",
    "a\n  {# c #}  \nb",
    "a\n  {#+ c +#}\nb",
    "{#",
    "{# a #} #}",
    "{# {{ 1 }} {% if %} #}x",
    "{% if yes %}\nx\n{% endif %}\ny",
    "  {% if yes %}\n  x\n  {% endif %}\ny",
    "  {%+ if yes %}\n  x\n  {%+ endif %}\ny",
    "  {%- if yes -%}\n  x\n  {%- endif -%}\ny",
    "a {%- if yes %} b {% endif -%} c",
    "{% if yes +%}\nx{% endif +%}\ny",
    "a\n\n  {{- 1 -}}  \n b",
    "a\n  {{ 1 }}\n b",
    "a {{- 1 }} b {{ 2 -}} c",
    "{{-1}}",
    "{{+1}}",
    "{{ 1 }}\n",
    "{{ 1 }}\n\n",
    "x\n",
    "\n",
    "",
    " ",
    "\r\na\rb\r\n",
    "a\r\n{% if yes %}\r\nb\r\n{% endif %}\r\n",
    "x {% raw %} {{ 1 }} {% if %} {% endraw %} y",
    "x {%- raw -%} {{ 1 }} {%- endraw -%} y",
    "  {% raw %}\n  a\n  {% endraw %}\n  b",
    "{% raw %}",
    "{% raw %}{% endraw",
    "{{ '{{' }}",
    "{{ '}}' }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}}}",
    "{{ '%}' }}{% if '%}' %}x{% endif %}",
    "{{",
    "{{ 1",
    "{{ }}",
    "{% %}",
    "{%",
    "{",
    "a { b } c {% if yes %}{ {% endif %}",
    "{{ 1 }",
    "{% if yes %}",
    "{% if yes %}{% else %}",
    "{% endif %}",
    "{% if yes %}{% endfor %}",
    "{% else %}",
    "{% foo %}",
    "{% do 1 %}",
    "{% if %}{% endif %}",
    "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% elif 0 %}x{% else %}c{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if none_list %}a{% else %}b{% endif %}",
    "{% if yes, no %}a{% endif %}",
    "{% if yes %}a{% else %}b{% else %}c{% endif %}",
    "{% if (yes if no else no) %}a{% endif %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in [1, 1, 2] %}{% if loop.changed(x, 'k') %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in l %}{{ loop }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in l %}{{ loop.foo }}{% endfor %}",
    "{% for x in l %}{{ loop.foo.bar }}{% endfor %}",
    "{% for x in l %}{{ loop|length }}{% endfor %}",
    "{% for x in none_list %}a{% else %}b{% endfor %}",
    "{% for x in l %}a{% else %}b{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for x in l if x > 9 %}a{% else %}none{% endfor %}",
    "{% for x in l if loop.index > 1 %}a{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for (k, v) in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for a, b in [[1]] %}{{ a }}{% endfor %}",
    "{% for a in 5 %}{{ a }}{% endfor %}",
    "{% for a in nil %}{{ a }}{% endfor %}",
    "{% for a in missing %}{{ a }}{% else %}e{% endfor %}",
    "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ x }}{{ y }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}|{% endfor %}",
    "{% for x in l %}{% break %}{% else %}e{% endfor %}",
    "{% for x in none_list %}{% else %}{% if yes %}z{% endif %}{% endfor %}",
    "{% break %}",
    "{% continue %}",
    "{% if yes %}{% break %}{% endif %}",
    "{% for loop in l %}{% endfor %}",
    "{% for x l %}{% endfor %}",
    "{% for 1 in l %}{% endfor %}",
    "{% for x.y in l %}{% endfor %}",
    "{% for true in l %}{% endfor %}",
    "{% for x in l %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in l %}{{ q }}{% set q = i %}{{ q }}{% endfor %}{{ q }}",
    "{% set n = 1 %}{{ n }}",
    "{{ n }}{% set n = 1 %}{{ n }}",
    "{% if yes %}{% set z = 1 %}{% endif %}{{ z }}",
    "{% if no %}{% set z = 1 %}{% endif %}{{ z }}",
    "{% if no %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1, 2, 3] %}{{ a }}",
    "{% set (a, b) = 'xy' %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set x %}\nbody {{ n }}\n{% endset %}[{{ x }}]",
    "{% set x | upper %}body{% endset %}{{ x }}",
    "{% set x | replace('o', '0') | upper %}foo{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace() %}{% for i in l %}{% set ns.sum = (ns.sum or 0) + i %}{% endfor %}{{ ns.sum }}",
    "{% set ns = namespace(found=false) %}{% for i in l %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
    "{% set ns = namespace({'a': 1}) %}{{ ns.a }}{{ ns['a'] }}",
    "{% set ns = namespace() %}{% set ns.a %}block{% endset %}{{ ns.a }}",
    "{% set ns = namespace(a=0) %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% set d.x = 1 %}",
    "{% set missing.x = 1 %}",
    "{% set x[0] = 1 %}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% set x = %}",
    "{% set x %}",
    "{% set %}",
    "{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=n) %}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a, b, a) %}{% endmacro %}",
    "{% macro m(a, b=1, a=2) %}{% endmacro %}",
    "{{ dict(a=1, b=2, a=3) }}",
    "{{ dict(a=1, aa=2, A=3) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(c=2) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m() %}{{ n }}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}",
    "{% set x = 5 %}{% macro m() %}{{ x }}{% set x = 6 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro m() %}{% for i in l %}{{ i }}{% endfor %}{% endmacro %}[{{ m() | upper }}]",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% for i in l %}{{ m() }}{% endfor %}{% macro m() %}{% endmacro %}",
    "{% macro m() %}\n  a\n{% endmacro %}[{{ m() }}]",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m(x) %}{{ caller(x, 2) }}!{% endmacro %}{% call(a, b) m(1) %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call m() %}{{ n }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}",
    "{% call m %}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{{ m }}",
    "{% macro m() %}x{% endmacro %}{{ m.name }}",
    "{% macro m(a, b=1) %}x{% endmacro %}{{ [m.arguments, m.catch_kwargs, m.catch_varargs, m.caller, m.explicit_caller] }}",
    "{% macro m(a) %}{{ kwargs }}{{ varargs }}{{ caller }}{% endmacro %}{{ [m.arguments, m.catch_kwargs, m.catch_varargs, m.caller] }}",
    "{% macro m(caller=1, kwargs=2, varargs=3) %}{{ kwargs }}{{ varargs }}{{ caller }}{% endmacro %}{{ [m.catch_kwargs, m.catch_varargs, m.caller, m.explicit_caller] }}{{ m() }}{{ m(4, 5, 6) }}",
    "{% macro m(varargs) %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(kwargs=2) }}{{ m(a=2) }}",
    "{% macro m() %}{{ [caller.name, caller.arguments, caller.caller] }}{% endmacro %}{% call(a, b) m() %}{{ kwargs }}{% endcall %}",
    "{% macro m() %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m.catch_kwargs }}{{ m(a=1) }}",
    "{% macro m() %}{{ kwargs }}{% set kwargs = 1 %}{% endmacro %}{{ m.catch_kwargs }}{{ m(a=1) }}",
    "{% macro m() %}{% set kwargs = kwargs %}{% endmacro %}{{ m.catch_kwargs }}",
    "{% macro m() %}{% for kwargs in l if kwargs %}{{ kwargs }}{% endfor %}{% endmacro %}{{ m.catch_kwargs }}{{ m() }}",
    "{% macro m() %}{% for i in varargs if kwargs %}{{ i }}{% endfor %}{% endmacro %}{{ [m.catch_varargs, m.catch_kwargs] }}{{ m(1, a=2) }}",
    "{% macro m() %}{% for i in l if kwargs %}{% set kwargs = 1 %}{% endfor %}{% endmacro %}{{ m.catch_kwargs }}",
    "{% macro m() %}{% with kwargs = 1 %}{{ kwargs }}{% endwith %}{{ kwargs }}{% endmacro %}{{ m.catch_kwargs }}",
    "{% macro m() %}{% with x = kwargs %}{{ x }}{% endwith %}{% endmacro %}{{ m.catch_kwargs }}{{ m(a=1) }}",
    "{% macro m() %}{% set kwargs %}x{% endset %}{{ kwargs }}{% endmacro %}{{ m.catch_kwargs }}{{ m() }}",
    "{% macro m() %}{% set x %}{{ kwargs }}{% endset %}{{ x }}{% endmacro %}{{ m.catch_kwargs }}{{ m(a=1) }}",
    "{% macro m() %}{% macro k(kwargs) %}{{ kwargs }}{% endmacro %}{{ kwargs }}{% endmacro %}{{ m.catch_kwargs }}",
    "{% macro m() %}{% macro kwargs(a=varargs) %}{% endmacro %}{{ kwargs }}{% endmacro %}{{ [m.catch_kwargs, m.catch_varargs] }}",
    "{% macro m() %}{% call(kwargs) m(varargs) %}{{ kwargs }}{% endcall %}{{ varargs }}{% endmacro %}{{ [m.catch_kwargs, m.catch_varargs] }}",
    "{% macro m() %}{% filter default(kwargs) %}{% set kwargs = 1 %}{% endfilter %}{% endmacro %}{{ m.catch_kwargs }}",
    "{% macro m() %}{% set ns = namespace() %}{% set ns.kwargs = 1 %}{{ kwargs.a }}{% endmacro %}{{ m.catch_kwargs }}{{ m(a=5) }}",
    "{% macro m(kwargs=varargs) %}{{ kwargs }}{% endmacro %}{{ [m.catch_kwargs, m.catch_varargs] }}",
    "{% macro m() %}x{% endmacro %}{{ [m._func, m.foo, m['name'], m['caller']] }}",
    "{% macro m() %}x{% endmacro %}{{ m._argument_count }}",
    "{{ [html | e, [s | e], {'a': s | safe}, (html | e) ~ 'x'] }}",
    "{{ '%r' | format(s | e) }}{{ [s | e | string, (s | e) == s, (s | e) + 'x'] }}{{ s | e }}",
    "{% macro 1() %}x{% endmacro %}",
    "{% macro m %}x{% endmacro %}",
    "{% macro m() %}{% break %}{% endmacro %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}",
    "{% filter nofilter %}{% endfilter %}",
    "{% filter list %}a{% endfilter %}",
    "{% filter length %}a{% endfilter %}",
    "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with a %}{% endwith %}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "x\n{% generation %}\na\n{% endgeneration %}\nb",
    "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}",
    "{% generation %}",
    "{% print n %}",
    "{% print n, s %}",
    "{{ raise_exception('stop: ' ~ n) }}",
    "{% if no %}{{ raise_exception('x') }}{% endif %}ok",
    "{% set x = l | map('string') %}{{ x | join }}{{ x | join }}",
    "{% set x = l | select %}{{ x | list | length }}{{ x | list | length }}",
    "{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% set x = loop %}{{ x is defined }}",
    "{% for i in l %}{% set x = loop.index %}{% endfor %}{{ x }}",
    "{{ n }}{{ n }}\n{{ n }}",
    "{% set messages = l[1:] %}{{ messages }}",
    "{%- set x = 1 -%}\n\n  {{ x }}",
    "a{% set x = 1 %}\nb",
    "{%- for x in l -%}\n {{ x }}\n{%- endfor -%}\n",
    "{% for x in l %}\n{{ x }}\n{% endfor %}\nend",
    "{% for x in l -%}\n  {{ x }} \n{% endfor %}",
    "\t {% if yes %} \t\n x{% endif %}",
    "a\n \t{% if yes %}b{% endif %}\n",
    "x  {% if yes %}b{% endif %}",
    "{{ 1 }}  {% if yes %}b{% endif %}",
    "{{ 1 }}\n  {% if yes %}b{% endif %}",
    "{% if yes %}  {% if yes %}b{% endif %}{% endif %}",
    "{% if yes %}\n  {% if yes %}b{% endif %}{% endif %}",
    "{# c #}  {% if yes %}b{% endif %}",
    "\u00a0{% if yes %}b{% endif %}",
    "a\u00a0\u2003{%- if yes %}b{% endif %}",
    "{% if yes %}é{{ 'ü' }}{% endif %}日本",
    "{{ '\r\n' | tojson }}",
    "{{ 'a\r\nb' }}",
    "{% if yes-%} x{% endif %}",
    "{{n}}{{n-1}}{{n -1}}",
    "{{ n-}} x",
    "{%if yes%}x{%endif%}",
    "{%    if yes    %}x{%endif    %}",
    "{%\nif\nyes\n%}x{%\nendif\n%}",
    "{{ [1,\n2,\n3] }}",
    "{{ s\n.upper()\n}}",
    "{% if n == 7 and (s == 'x' or yes) %}ok{% endif %}",
    "{% if s is string and s | length > 3 %}ok{% endif %}",
    "{% if 'x' in d or 'b' in d %}ok{% endif %}",
    "{% if not (n and no) %}ok{% endif %}",
    "{% for m in rows[::-1] %}{{ m.name }}{% endfor %}",
    "{% for m in rows | reverse %}{{ loop.index }}{{ m.name }}{% endfor %}",
    "{% for m in rows | selectattr('v', 'ge', 2) %}{{ m.name }}{{ loop.last }}{% endfor %}",
    "{% for g in rows | groupby('name') %}{{ g.grouper if g.grouper else g[0] }}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] if b > a + 2 %}{{ a }}{{ b }} {% endfor %}{% endfor %}",
    "{% set x = 1 %}{% macro m() %}{% set x = x %}{{ x }}{% endmacro %}{{ m() }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% for x in l %}{% set ns2 = namespace(i=loop) %}{{ ns2.i.index }}{% endfor %}",
    "{{ loop is defined }}{% for x in [1] %}{{ loop is defined }}{% endfor %}",
    "{% if a is defined and a %}x{% else %}y{% endif %}",
    "{% set content = '<think>a</think>b' %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ content }}",
    "{% set ns = namespace(last=-1) %}{% for m in rows[::-1] %}{% set idx = (rows | length - 1) - loop.index0 %}{% if ns.last < 0 and m.v == 1 %}{% set ns.last = idx %}{% endif %}{% endfor %}{{ ns.last }}",
]

SNIPPETS = [
    "{{ " + line + " }}"
    for line in _EXPRESSIONS.strip("\n").replace("'a\\\nb'", "'a\\\x00b'").split("\n")
]
SNIPPETS = [s.replace("\x00", "\n") for s in SNIPPETS if "{{ {{" not in s] + _BLOCKS


# ---- random ones ----------------------------------------------------------------------------

_ATOMS = ["n", "neg", "f", "yes", "no", "nil", "s", "empty", "uni", "multi", "pad", "quote", "l", "words", "nested",
          "d", "rows", "missing", "1", "0", "2", "-1", "3.5", "'a'", "''", "'l'", "' '", "none", "true", "[]", "{}",
          "range(4)", "items", "html", "(1, 2)", "[1, 'b']", "{'k': 1}", "d.C", "rows[0]", "words[1]", "d.a"]
_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "join", "join('-')", "default('x')",
            "default('x', true)", "replace('l', 'L')", "tojson", "tojson(indent=2)", "list", "string", "int", "float",
            "abs", "round", "round(1)", "sort", "sort(reverse=true)", "unique | list", "map('string') | list",
            "map('upper') | join", "select | list", "reject | list", "reverse | list", "items | list", "dictsort",
            "indent", "indent(2, true)", "e", "sum", "min", "max", "batch(2) | list", "slice(2) | list", "wordcount",
            "truncate(5)", "center(9)", "select('string') | list", "map('length') | list", "selectattr('v') | list",
            "map(attribute='name') | list", "groupby(0)", "safe", "count", "urlencode", "attr('name')", "format(1)"]
_METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip('d')", "split()", "split('l')", "split('l', 1)",
            "rsplit(' ', 1)", "splitlines()", "startswith('H')", "endswith(('d', 'x'))", "title()", "capitalize()",
            "replace('l', '')", "find('l')", "rfind('l')", "count('l')", "join(words)", "isdigit()", "isalpha()",
            "isspace()", "get('a')", "items()", "keys()", "values()", "index(1)", "swapcase()", "zfill(4)",
            "partition('l')", "center(7)", "format(1)", "name", "b", "C", "x", "append(1)", "isupper()", "islower()",
            "istitle()", "removeprefix('He')", "rjust(5, '.')", "isalnum()", "isnumeric()", "isprintable()"]
_TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping",
          "iterable", "sequence", "callable", "even", "odd", "divisibleby 2", "eq 1", "ne 'a'", "lt 2", "gt 1", "in l",
          "lower", "upper", "not defined", "not none", "sameas none", "escaped"]
_BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in", "**"]


def _expression(draw, depth):
    kind = draw.randrange(12) if depth > 0 else 0
    sub = lambda: _expression(draw, depth - 1)  # noqa: E731
    if kind <= 1:
        return draw.choice(_ATOMS)
    if kind == 2:
        return f"{sub()} {draw.choice(_BINARY[:-1])} {sub()}"
    if kind == 3:
        return f"({sub()} {draw.choice(_BINARY)} {draw.choice(_ATOMS)})"
    if kind == 4:
        return f"{sub()} | {draw.choice(_FILTERS)}"
    if kind == 5:
        return f"({sub()}).{draw.choice(_METHODS)}"
    if kind == 6:
        return f"{sub()} is {draw.choice(_TESTS)}"
    if kind == 7:
        return f"({sub()})[{draw.choice(['0', '-1', '1:', ':-1', '::-1', '1:3', '::2', repr('a'), repr('name'), sub()])}]"
    if kind == 8:
        return f"({sub()} if {sub()} else {sub()})"
    if kind == 9:
        return draw.choice(["not ", "-", "+"]) + f"({sub()})"
    if kind == 10:
        return f"[{sub()}, {sub()}]"
    return f"{{'k': {sub()}, 'm': {sub()}}}"


def _body(draw, depth):
    space = lambda: draw.choice(["", "", " ", "\n", "\n  ", "  \n", "\t"])  # noqa: E731
    sign = lambda: draw.choice(["", "", "", "-", "+"])  # noqa: E731
    end = lambda: draw.choice(["", "", "-"])  # noqa: E731
    e = lambda: _expression(draw, 2)  # noqa: E731
    out = ""
    for _ in range(draw.randrange(1, 4)):
        kind = draw.randrange(10) if depth > 0 else draw.randrange(3)
        b = lambda: _body(draw, depth - 1)  # noqa: E731
        if kind == 0:
            out += draw.choice(["text", "a b", "é", "{ x }", "%"]) + space()
        elif kind <= 2:
            out += "{{" + sign() + " " + e() + " " + end() + "}}" + space()
        elif kind == 3:
            out += (f"{{%{sign()} if {_expression(draw, 1)} {sign()}%}}{space()}{b()}{{%{sign()} else {end()}%}}{b()}"
                    f"{space()}{{%{sign()} endif {sign()}%}}{space()}")
        elif kind == 4:
            out += (f"{{%{sign()} for x in {_expression(draw, 1)} {end()}%}}{space()}{{{{ x }}}}{b()}{space()}"
                    f"{{{{ loop.index }}}}{{%{sign()} endfor {sign()}%}}")
        elif kind == 5:
            out += f"{{% set {draw.choice(['n', 'x', 's', 'q'])} = {e()} %}}" + space()
        elif kind == 6:
            out += f"{{% set q %}}{b()}{{% endset %}}{{{{ q }}}}" + space()
        elif kind == 7:
            out += f"{{% macro m(a, b={_expression(draw, 1)}) %}}{{{{ a }}}}{{{{ b }}}}{b()}{{% endmacro %}}{{{{ m({e()}) }}}}"
        elif kind == 8:
            out += f"{{% filter {draw.choice(_FILTERS).split(' |')[0]} %}}{b()}{{% endfilter %}}"
        else:
            out += f"{{#{sign()} note {sign()}#}}" + space()
    return out


def random_snippet(draw):
    if draw.randrange(2):
        return "{{ " + _expression(draw, 3) + " }}"
    return _body(draw, 2)
