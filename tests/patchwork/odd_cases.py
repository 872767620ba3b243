"""Odd patches, as data: what each is about, and what must come of it.

``stricter`` says why hq does not apply what a peer applies, ``looser`` why it applies what both
peers leave; the peers are run on every case, and a case that lacks a reason it needs fails.
"""

# fmt: off
from __future__ import annotations

import hashlib
from typing import NamedTuple

from patchwork.support import Tree, numbered, regular, tree

N20 = numbered(1, 20)
SEVEN = N20.replace(b"line 7\n", b"line seven\n")
HEAD = "--- a/f\n+++ b/f\n"
BODY = " line 4\n line 5\n line 6\n-line 7\n+line seven\n line 8\n line 9\n line 10\n"
HUNK = "@@ -4,7 +4,7 @@\n" + BODY
STANDARD = HEAD + HUNK
MAKES_N = "@@ -0,0 +1,2 @@\n+one\n+two\n"
DROPS_N = "@@ -1,2 +0,0 @@\n-one\n-two\n"
F = tree(f=N20)
DONE = tree(f=SEVEN)


def blob(data: bytes) -> str:
    """Git's id of a file's content, shortened."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()[:10]


class Case(NamedTuple):
    name: str
    about: str
    tree: Tree
    patch: str | bytes
    want: str
    hunks: list[str] | None = None
    after: Tree | None = None
    strip: int = 1
    reverse: bool = False
    stricter: str = ""
    looser: str = ""
    differs: str = ""

    @property
    def data(self) -> bytes:
        return self.patch if isinstance(self.patch, bytes) else self.patch.encode()


def ok(
    name: str, about: str, before: Tree, patch: str | bytes, then: Tree, hunks: str = "", **more
) -> Case:
    return Case(name, about, before, patch, "applied", hunks.split() or None, then, **more)


def no(
    name: str, want: str, about: str, before: Tree, patch: str | bytes, hunks: str = "", **more
) -> Case:
    return Case(name, about, before, patch, want, hunks.split() or None, None, **more)


def git(*lines: str, old: str = "f", new: str = "f") -> str:
    return f"diff --git a/{old} b/{new}\n" + "".join(line + "\n" for line in lines)


def rejected(name: str, about: str, before: Tree, patch: str | bytes, hunks: str = "", **more):
    return no(name, "rejected", about, before, patch, hunks, **more)


def refused(name: str, about: str, before: Tree, patch: str | bytes, **more):
    return no(name, "refused", about, before, patch, "", **more)


def already(name: str, about: str, before: Tree, patch: str | bytes, hunks: str = "", **more):
    return no(name, "already-applied", about, before, patch, hunks, **more)


NAMES = [
    ok("plain", "the standard hunk where it says", F, STANDARD, DONE, "exact"),
    ok("timestamps", "dates behind tabs", F,
       "--- a/f\t2020-01-01 00:00:00.000000000 +0000\n+++ b/f\t2020-01-02 10:00:00 +0200\n" + HUNK,
       DONE),
    ok("date-after-blank", "a date behind blanks", F,
       "--- a/f 2020-01-01 00:00:00.000000000 +0000\n+++ b/f 2020-01-01 00:00:00 +0000\n" + HUNK,
       DONE),
    ok("svn", "revisions behind tabs, an Index line", F,
       "Index: f\n" + "=" * 67 + "\n--- f\t(revision 1)\n+++ f\t(working copy)\n" + HUNK, DONE,
       strip=0),
    ok("cvs", "what cvs diff -u writes", F,
       "Index: f\nRCS file: /cvs/f,v\nretrieving revision 1.2\ndiff -u -r1.2 f\n"
       "--- f\t1 Jan 2001 00:00:00 -0000\t1.2\n+++ f\t2 Jan 2001 00:00:00 -0000\n" + HUNK, DONE,
       strip=0),
    ok("hg", "what hg diff writes", F,
       "diff -r 0123456789ab f\n--- a/f\tThu Jan 01 00:00:01 1970 +0000\n"
       "+++ b/f\tMon Mar 02 10:00:00 2020 +0100\n" + HUNK, DONE),
    ok("gnu-diff-line", "the command line of diff -ruN", F,
       "diff -ruN a/f b/f\n" + STANDARD, DONE),
    ok("orig-suffix", "the old name has a suffix and no file", F,
       "--- a/f.orig\n+++ b/f\n" + HUNK, DONE),
    ok("new-suffix", "the new name has a suffix", F, "--- a/f\n+++ b/f.new\n" + HUNK, DONE),
    ok("both-exist-suffix", "f and f.orig are both there: the shorter is meant",
       F | tree(**{"f.orig": N20}), "--- a/f.orig\n+++ b/f\n" + HUNK,
       DONE | tree(**{"f.orig": N20})),
    refused("both-exist", "two unlike names that both exist", tree(g=N20, f=N20),
            "--- a/g\n+++ b/f\n" + HUNK, stricter="GNU patch takes the old name, git the new one"),
    ok("git-blanks", "blanks in the name, a git line above", {"my file.txt": regular(N20)},
       git("--- a/my file.txt", "+++ b/my file.txt", old="my file.txt", new="my file.txt") + HUNK,
       {"my file.txt": regular(SEVEN)}),
    ok("git-blanks-tab", "git writes a tab behind such a name", {"my file.txt": regular(N20)},
       "--- a/my file.txt\t\n+++ b/my file.txt\t\n" + HUNK, {"my file.txt": regular(SEVEN)}),
    ok("blanks-no-tab", "blanks in the name and nothing to end it", {"my file.txt": regular(N20)},
       "--- a/my file.txt\n+++ b/my file.txt\n" + HUNK, {"my file.txt": regular(SEVEN)}),
    ok("quoted", "octal escapes", {"gr\u00fc\u00df": regular(N20)},
       '--- "a/gr\\303\\274\\303\\237"\n+++ "b/gr\\303\\274\\303\\237"\n' + HUNK,
       {"gr\u00fc\u00df": regular(SEVEN)}),
    ok("quoted-git", "quotes, a tab and a backslash in a name", {'a\t"b\\c': regular(N20)},
       'diff --git "a/a\\t\\"b\\\\c" "b/a\\t\\"b\\\\c"\n'
       '--- "a/a\\t\\"b\\\\c"\n+++ "b/a\\t\\"b\\\\c"\n'
       + HUNK, {'a\t"b\\c': regular(SEVEN)}),
    ok("latin1-name", "a name that is not UTF-8", {"caf\udce9": regular(N20)},
       b"--- a/caf\xe9\n+++ b/caf\xe9\n" + HUNK.encode(), {"caf\udce9": regular(SEVEN)}),
    ok("p0", "no directory to strip", F, "--- f\n+++ f\n" + HUNK, DONE, strip=0),
    ok("p2", "two directories to strip", F, "--- x/a/f\n+++ y/b/f\n" + HUNK, DONE, strip=2),
    ok("double-slash", "a run of slashes counts once", F, "--- a//f\n+++ b//f\n" + HUNK, DONE),
    ok("dot-names", "names that begin with ./", F, "--- ./f\n+++ ./f\n" + HUNK, DONE, strip=0,
       ),
    refused("strip-too-deep", "nothing left of the name", F, "--- f\n+++ f\n" + HUNK),
    refused("dot-dot", "a name that climbs", F, "--- a/../f\n+++ b/../f\n" + HUNK),
    refused("dot-dot-one-side", "one of the names climbs", F, "--- a/../../x\n+++ b/f\n" + HUNK,
            stricter="GNU patch and git take the other name"),
    refused("absolute", "an absolute name", F, "--- /f\n+++ /f\n" + HUNK,
            stricter="stripped it would be harmless; DESIGN refuses every absolute name"),
    refused("dot-git", "a git hook", F, "--- /dev/null\n+++ b/.git/hooks/post-checkout\n" + MAKES_N,
            stricter="GNU patch writes it"),
    refused("dot-git-case", "the same for file systems without case", F,
            "--- /dev/null\n+++ b/.GIT/config\n" + MAKES_N, stricter="GNU patch writes it"),
    refused("line-break-in-name", "a quoted line break", F,
            '--- "a/f\\nx"\n+++ "b/f\\nx"\n' + HUNK),
    refused("nul-in-name", "a quoted NUL", F, '--- "a/f\\000x"\n+++ "b/f\\000x"\n' + HUNK,
            stricter="git cuts the name there"),
    refused("both-null", "/dev/null on both sides", F, "--- /dev/null\n+++ /dev/null\n" + HUNK),
    refused("git-inconsistent", "the git line names another file", tree(f=N20, g=N20),
            git("index 1111111..2222222 100644", old="g", new="g") + STANDARD,
            stricter="GNU patch takes the lower lines"),
    ok("git-prefix-mnemonic", "i/ and w/ in front", F, "diff --git i/f w/f\n--- i/f\n+++ w/f\n"
       + HUNK, DONE),
    ok("git-no-prefix", "git diff --no-prefix", F, "diff --git f f\n--- f\n+++ f\n" + HUNK, DONE,
       strip=0),
]

FORMATS = [
    refused("context-diff", "another format", F,
            "*** a/f\t2020-01-01\n--- b/f\t2020-01-02\n***************\n*** 4,6 ****\n  line 4\n"
            "! line 5\n  line 6\n--- 4,6 ----\n  line 4\n! line five\n  line 6\n",
            stricter="GNU patch reads context diffs; unified diffs are all that is read here"),
    refused("normal-diff", "no context at all", F, "Index: f\n7c7\n< line 7\n---\n> line seven\n",
            strip=0, stricter="nothing in it says that line 7 is the right one"),
    refused("ed-script", "commands for an editor", F, "7c\nline seven\n.\n"),
    refused("ed-delete", "a lone command", F, "7d\n"),
    refused("combined", "the diff of a merge", F,
            "diff --cc f\nindex 1,2..3\n--- a/f\n+++ b/f\n@@@ -1,1 -1,1 +1,1 @@@\n- line 1\n"
            " -line 1\n++line one\n"),
    refused("git-binary", "a binary patch", F,
            git("index 1111111..2222222 100644", "GIT binary patch", "literal 3",
                "KcmZQzWMT#Y01f~L", "", "literal 0", "HcmV?d00001", "")),
    refused("binary-stub", "all that diff says of a binary file", F,
            STANDARD + "Binary files a/x.bin and b/x.bin differ\n",
            stricter="the peers drop the binary file without a word"),
    refused("git-binary-stub", "the same under a git line", F,
            git("index 1111111..2222222 100644", "Binary files a/x.bin and b/x.bin differ",
                old="x.bin", new="x.bin")),
    refused("empty-patch", "no bytes", F, "", stricter="GNU patch is content with nothing"),
    refused("only-text", "a preamble and no diff", F, "Subject: nothing\n\nReally.\n"),
    refused("header-only", "file headers without hunks", F, HEAD),
    refused("header-cut", "a first file without hunks, then a good one", F,
            "--- a/g\n+++ b/g\n" + STANDARD, stricter="the peers skip the cut file silently"),
    refused("gzip", "a compressed patch", F, b"\x1f\x8b\x08\x00rest"),
    refused("utf-16", "re-encoded by a shell", F, STANDARD.encode("utf-16")),
    ok("utf-8-bom", "a byte order mark in front", F, b"\xef\xbb\xbf" + STANDARD.encode(), DONE),
    ok("mail", "a mail around the patch", F,
       "From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\n"
       "Date: Mon, 2 Mar 2020 10:00:00 +0100\nSubject: [PATCH] seven\n\nBecause.\n---\n f | 2 +-\n"
       " 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
       + git("index 1111111..2222222 100644", "--- a/f", "+++ b/f") + HUNK + "-- \n2.39.5\n\n",
       DONE, "exact"),
    ok("signature-stripped", "the blank of the signature is gone", F, STANDARD + "--\n2.39.5\n",
       DONE),
    ok("trailing-text", "text below that looks a little like a hunk", F,
       STANDARD + "\nthe end, and\n@@ not a hunk\n+++ neither\n", DONE),
    ok("quoted-diff", "a diff quoted in the preamble", F,
       "".join("> " + line + "\n" for line in STANDARD.replace("seven", "VII").splitlines())
       + "\n" + STANDARD, DONE),
    ok("indented-diff", "a diff indented in the preamble", F,
       "".join("    " + line + "\n" for line in STANDARD.splitlines()) + "\n" + STANDARD, DONE),
    refused("bare-hunk-above", "a hunk in the preamble", F, "Text.\n\n" + HUNK + "\n" + STANDARD,
            stricter="which of the two is meant?"),
    refused("whole-diff-above", "the whole diff stands in the preamble as well", F,
            "Text.\n\n" + STANDARD + "\n---\n" + STANDARD),
    refused("hunk-after-text", "a hunk torn off by a line of text", F,
            STANDARD + "some text\n@@ -14,3 +14,3 @@\n line 14\n-line 15\n+line XV\n line 16\n",
            stricter="GNU patch takes the first hunk only"),
    refused("git-line-only", "a hunk right below a bare git line", F, git() + HUNK,
            stricter="git refuses it too"),
    ok("git-no-names", "a hunk below an index line", F,
       git("index 1111111..2222222 100644") + HUNK, DONE),
    ok("heading-like-hunk", "text after the second @@ that looks like a header", F,
       HEAD + "@@ -4,7 +4,7 @@ def f(): # @@ -1,2 +3,4 @@\n" + BODY, DONE, "exact"),
    ok("heading-glued", "no blank after the second @@", F,
       HEAD + "@@ -4,7 +4,7 @@x\n" + BODY, DONE),
    ok("svn-property", "a property change below the hunk", F,
       "Index: f\n--- f\t(revision 1)\n+++ f\t(working copy)\n" + HUNK
       + "\nProperty changes on: f\n___\nAdded: svn:eol-style\n## -0,0 +1 ##\n+native\n", DONE,
       strip=0),
]

COUNTS = [
    ok("looks-like-header", "lines that begin with -- and ++ go and come",
       tree(f="a\n-- old\nb\nc\nd\ne\n"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n--- old\n+++ new\n b\n@@ -5,2 +5,2 @@\n d\n-e\n+E\n",
       tree(f="a\n++ new\nb\nc\nd\nE\n"), "exact exact"),
    ok("looks-like-header-last", "the same as the last lines of a hunk",
       tree(f="a\n-- old\nb\nc\n"),
       HEAD + "@@ -2 +2 @@\n--- old\n+++ new\n@@ -3,2 +3,2 @@\n b\n-c\n+C\n",
       tree(f="a\n++ new\nb\nC\n"), "exact exact"),
    ok("two-files", "two files and no line between", F | tree(g=N20),
       STANDARD + STANDARD.replace("a/f", "a/g").replace("b/f", "b/g"), DONE | tree(g=SEVEN)),
    ok("two-files-git", "two files under git lines, with a signature", F | tree(g=N20),
       git("index 1111111..2222222 100644", "--- a/f", "+++ b/f") + HUNK
       + git("index 1111111..2222222 100644", "--- a/g", "+++ b/g", old="g", new="g") + HUNK
       + "-- \n2.39.5\n", DONE | tree(g=SEVEN)),
    refused("counts-too-small", "lines left over", F, HEAD + "@@ -4,5 +4,5 @@\n" + BODY,
            stricter="git drops the rest without a word"),
    refused("counts-too-small-blank", "the left-over lines begin with a stripped blank line", F,
            HEAD + "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+line five\n line 6\n\n+more\n",
            stricter="the peers drop what is left over"),
    refused("counts-too-large", "lines missing", F, HEAD + "@@ -4,9 +4,9 @@\n" + BODY,
            stricter="GNU patch makes up to two empty lines"),
    refused("truncated", "cut inside its last hunk", F, STANDARD[:-20]),
    refused("cut-in-a-line", "the last line has no end", F, STANDARD[:-1]),
    refused("no-closing", "a header without its second @@", F, HEAD + "@@ -4,7 +4,7\n" + BODY),
    refused("second-no-closing", "the same for the second hunk", F,
            STANDARD + "@@ -14,3 +14,3\n line 14\n-line 15\n+line XV\n line 16\n",
            stricter="git takes the first hunk only"),
    refused("huge-number", "a line number beyond any file", F,
            HEAD + "@@ -99999999999999999999,7 +4,7 @@\n" + BODY, stricter="git wraps around"),
    rejected("large-number", "a line number beyond this file: found, with a large offset", F,
             HEAD + "@@ -999999999,1 +4,1 @@\n-line nowhere\n+line seven\n", "conflict"),
    ok("large-offset", "stated far below the end", F, HEAD + "@@ -4000,7 +4,7 @@\n" + BODY, DONE,
       "offset"),
    ok("counts-omitted", "a count of 1 left out", F, HEAD + "@@ -7 +7 @@\n-line 7\n+line seven\n",
       DONE, "exact", ),
    refused("all-context", "a hunk that changes nothing", F,
            HEAD + "@@ -4,3 +4,3 @@\n line 4\n line 5\n line 6\n"),
    refused("same-line", "a line replaced by itself", F,
            HEAD + "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+line 5\n line 6\n",
            stricter="a patch that changes nothing is no patch"),
    refused("tab-for-blank", "a context line whose blank became a tab", tree(f="\ta\nb\nc\n"),
            HEAD + "@@ -1,3 +1,3 @@\n\ta\n-b\n+B\n c\n",
            stricter="GNU patch assumes that a blank was eaten"),
    ok("stripped-blank", "an empty context line without its blank", tree(f="a\n\nb\n"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", tree(f="a\n\nB\n")),
    ok("zero-start", "line 0 stated for a hunk with lines", F, HEAD + "@@ -0,7 +0,7 @@\n" + BODY,
       DONE, "offset"),
]

ENDS = [
    ok("eof-both", "no newline on either side", tree(f="a\nb\nc"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n\\ No newline at end of file\n", tree(f="a\nB\nc")),
    ok("eof-old", "a newline is added", tree(f="a\nb\nc"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n b\n-c\n\\ No newline at end of file\n+c\n",
       tree(f="a\nb\nc\n")),
    ok("eof-new", "a newline goes", tree(f="a\nb\nc\n"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n b\n-c\n+c\n\\ No newline at end of file\n", tree(f="a\nb\nc")),
    ok("eof-other-language", "the marker in another language", tree(f="a\nb\nc"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n\\ Kein Zeilenumbruch am Dateiende.\n",
       tree(f="a\nB\nc")),
    ok("eof-no-final-newline", "the marker itself has no newline", tree(f="a\nb\nc"),
       HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n\\ No newline at end of file", tree(f="a\nB\nc")),
    rejected("eof-file-has-newline", "the file has the newline that the patch says is not there",
             tree(f="a\nb\nc\n"),
             HEAD + "@@ -1,3 +1,3 @@\n-a\n+A\n b\n c\n\\ No newline at end of file\n",
             stricter="git takes the newline away"),
    rejected("eof-patch-has-newline", "the other way round", tree(f="a\nb\nc"),
             HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "fuzzy"),
    refused("marker-in-the-middle", "lines follow a last line", tree(f="a\nb\nc\n"),
            HEAD + "@@ -1,3 +1,3 @@\n a\n\\ No newline at end of file\n-b\n+B\n c\n",
            stricter="git ignores where it stands"),
    refused("marker-first", "a marker with no line above", tree(f="a\nb\nc\n"),
            HEAD + "@@ -1,3 +1,3 @@\n\\ No newline at end of file\n a\n-b\n+B\n c\n",
            stricter="GNU patch skips it"),
    rejected("u0-newline-in-the-middle", "a line that would lose its end inside the file",
             tree(f="a\nb\nc\n"), HEAD + "@@ -2 +2 @@\n-b\n+B\n\\ No newline at end of file\n",
             stricter="GNU patch joins two lines"),
    rejected("crlf-file", "the file has CRLF, the patch LF",
             tree(f=N20.replace(b"\n", b"\r\n")), STANDARD, "conflict"),
    rejected("crlf-patch", "the patch has CRLF, the file LF", F, STANDARD.replace("\n", "\r\n"),
             "conflict", stricter="GNU patch strips the carriage returns"),
    ok("crlf-both", "both have", tree(f=N20.replace(b"\n", b"\r\n")),
       STANDARD.replace("\n", "\r\n"), tree(f=SEVEN.replace(b"\n", b"\r\n"))),
    ok("crlf-body", "LF headers, CRLF lines", tree(f=N20.replace(b"\n", b"\r\n")),
       HEAD + "@@ -4,7 +4,7 @@\n" + BODY.replace("\n", "\r\n"),
       tree(f=SEVEN.replace(b"\n", b"\r\n"))),
    ok("mixed-ends", "one CRLF line among LF lines", tree(f="a\r\nb\nc\n"),
       HEAD + "@@ -1,3 +1,3 @@\n a\r\n-b\n+B\r\n c\n", tree(f="a\r\nB\r\nc\n")),
    ok("lone-cr", "a carriage return ends no line", tree(f="a\rb\nc\n"),
       HEAD + "@@ -1,2 +1,2 @@\n a\rb\n-c\n+C\n", tree(f="a\rb\nC\n")),
    ok("odd-bytes", "NUL, form feed, latin-1 and U+2028 end no line",
       tree(f=b"a\0b\n\x0c\ncaf\xe9\n\xe2\x80\xa8\n"),
       HEAD.encode() + b"@@ -1,4 +1,4 @@\n a\0b\n \x0c\n-caf\xe9\n+caf\xc3\xa9\n \xe2\x80\xa8\n",
       tree(f=b"a\0b\n\x0c\ncaf\xc3\xa9\n\xe2\x80\xa8\n")),
    rejected("bom-in-file", "the file begins with a byte order mark",
             tree(f=b"\xef\xbb\xbf" + N20),
             HEAD + "@@ -1,3 +1,3 @@\n line 1\n-line 2\n+line two\n line 3\n", "fuzzy"),
    rejected("tabs-and-blanks", "white space differs",
             tree(f="\tif x:\n\t\ty\n\tz\nline 1\n"),
             HEAD + "@@ -1,4 +1,4 @@\n         if x:\n                 y\n-        z\n"
             "+        zz\n line 1\n", "conflict"),
]

FUNCTIONS = "".join(
    f"def f{n}():\n    a = 1\n    b = 2\n    c = 3\n    return a\n\n" for n in (1, 2, 3)
)
IN_FUNCTION = " a = 1\n-    b = 2\n+    b = 20\n     c = 3\n".replace(" a", "     a", 1)


def twins(start: int, heading: str = "") -> str:
    return HEAD + f"@@ -{start},3 +{start},3 @@{heading}\n" + IN_FUNCTION


def in_function(number: int) -> Tree:
    head, _, rest = FUNCTIONS.partition(f"def f{number}():\n")
    return tree(f=head + f"def f{number}():\n" + rest.replace("b = 2", "b = 20", 1))


PLACES = [
    ok("twins-blob", "the file is the one the patch was made from: the nearest place",
       tree(f=FUNCTIONS), git(
           f"index {blob(FUNCTIONS.encode())}..1111111 100644", "--- a/f", "+++ b/f")
       + "@@ -7,3 +7,3 @@\n" + IN_FUNCTION, in_function(2), "offset"),
    ok("u0-change-beside-its-result", "no context, moved, and the new line stands elsewhere too",
       tree(f=b"line seven\nnew\n" + N20), HEAD + "@@ -7 +7 @@\n-line 7\n+line seven\n",
       tree(f=b"line seven\nnew\n" + SEVEN), "offset"),
    ok("label-in-function", "a label at the margin ends no function",
       tree(f="int f(int a)\n{\n\tx();\nout:\n\ty();\n\tz();\n}\n"),
       HEAD + "@@ -5,3 +5,3 @@ int f(int a)\n \ty();\n-\tz();\n+\tq();\n }\n",
       tree(f="int f(int a)\n{\n\tx();\nout:\n\ty();\n\tq();\n}\n"), "exact"),
    ok("offset", "the whole file moved down", tree(f=b"new\n" * 3 + N20), STANDARD,
       tree(f=b"new\n" * 3 + SEVEN), "offset"),
    ok("offset-up", "lines above are gone", tree(f=numbered(3, 20)), STANDARD,
       tree(f=numbered(3, 20).replace(b"line 7\n", b"line seven\n")), "offset"),
    ok("stated-among-twins", "five matches; the stated line is taken", tree(f="d\nx\ne\n" * 5),
       HEAD + "@@ -7,3 +7,3 @@\n d\n-x\n+Y\n e\n",
       tree(f="d\nx\ne\n" * 2 + "d\nY\ne\n" + "d\nx\ne\n" * 2),
       "exact"),
    rejected("twins", "equally good places, none of them stated", tree(f=FUNCTIONS), twins(5),
             "ambiguous", stricter="the peers take the nearest"),
    ok("twins-heading", "the heading singles one out", tree(f=FUNCTIONS), twins(5, " def f3():"),
       in_function(3), "offset", differs="the peers take the nearest, in another function"),
    rejected("twins-heading-unknown", "the heading names none of them", tree(f=FUNCTIONS),
             twins(5, " def g():"), "ambiguous", stricter="the peers take the nearest"),
    ok("wrong-function-stated", "the stated line is in another function: taken, and noted",
       tree(f=FUNCTIONS), twins(2, " def f2():"), in_function(1), "exact"),
    rejected("fuzz-one", "the outermost context line differs",
             tree(f=N20.replace(b"line 4\n", b"LINE 4\n")), STANDARD, "fuzzy"),
    rejected("fuzz-two", "the second one differs",
             tree(f=N20.replace(b"line 5\n", b"LINE 5\n")), STANDARD, "fuzzy"),
    rejected("fuzz-three", "the innermost one differs",
             tree(f=N20.replace(b"line 6\n", b"LINE 6\n")), STANDARD, "conflict"),
    rejected("removed-differs", "the line to go differs",
             tree(f=N20.replace(b"line 7\n", b"LINE 7\n")), STANDARD, "conflict"),
    rejected("missing", "no such file", tree(g=N20), STANDARD, "target-missing"),
    rejected("empty-file", "the file is empty", tree(f=""), STANDARD, "conflict"),
    rejected("end-tied", "no context after the change, but text follows",
             tree(f=b"a\nb\nx\n" + numbered(1, 3)), HEAD + "@@ -1,3 +1,4 @@\n a\n b\n x\n+tail\n",
             "conflict"),
    ok("end-tied-at-end", "no context after the change, at the end", tree(f="a\nb\nx\n"),
       HEAD + "@@ -1,3 +1,4 @@\n a\n b\n x\n+tail\n", tree(f="a\nb\nx\ntail\n")),
    ok("end-tied-moved", "the same, the file having grown above", tree(f="0\na\nb\nx\n"),
       HEAD + "@@ -1,3 +1,4 @@\n a\n b\n x\n+tail\n", tree(f="0\na\nb\nx\ntail\n"), "offset",
       looser="git ties it to line 1 as well, and GNU patch looks no further"),
    rejected("start-tied", "less context before than after, at line 1, and the file moved",
             tree(f=numbered(100, 104) + N20),
             HEAD + "@@ -1,5 +1,5 @@\n line 1\n-line 2\n+line two\n line 3\n line 4\n line 5\n",
             "fuzzy"),
    ok("start-even", "even context at line 1, and the file moved: one place, so it is taken",
       tree(f="new\n" + "".join(f"line {n}\n" for n in range(1, 9))),
       HEAD + "@@ -1,7 +1,7 @@\n line 1\n line 2\n line 3\n-line 4\n+line four\n line 5\n line 6\n"
       " line 7\n",
       tree(f="new\n" + "".join(f"line {n}\n" for n in range(1, 9)).replace("line 4", "line four")),
       "offset"),
    ok("uneven-end", "fewer lines after the change than before, not at the end", F,
       HEAD + "@@ -4,5 +4,5 @@\n line 4\n line 5\n line 6\n-line 7\n+line seven\n line 8\n", DONE,
       "exact"),
    ok("overlap", "hunk 2 begins in hunk 1's last context", F,
       HEAD + "@@ -4,5 +4,5 @@\n line 4\n line 5\n-line 6\n+line six\n line 7\n line 8\n"
       "@@ -7,5 +7,5 @@\n line 7\n line 8\n-line 9\n+line nine\n line 10\n line 11\n",
       tree(f=N20.replace(b"line 6", b"line six").replace(b"line 9", b"line nine")),
       "exact exact"),
    rejected("out-of-order", "hunk 2 is stated above hunk 1", F,
             HEAD + "@@ -14,3 +14,3 @@\n line 14\n-line 15\n+line XV\n line 16\n"
             "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+line five\n line 6\n", "exact conflict",
             stricter="git puts them in any order"),
    rejected("order-kept", "hunk 2 would fit only above hunk 1",
             tree(f="x\ny\nz\n" + "a\nb\nc\n" + "d\n" * 9),
             HEAD + "@@ -4,3 +4,3 @@\n a\n-b\n+B\n c\n@@ -9,3 +9,3 @@\n x\n-y\n+Y\n z\n",
             "exact conflict", stricter="git puts hunk 2 above hunk 1"),
    ok("offset-carried", "the second hunk moves with the first", tree(f=b"new\n" + N20),
       STANDARD + "@@ -14,3 +14,3 @@\n line 14\n-line 15\n+line XV\n line 16\n",
       tree(f=b"new\n" + SEVEN.replace(b"line 15", b"line XV")), "offset offset"),
    ok("added-above", "lines that hunk 1 added move hunk 2, which is exact all the same", F,
       HEAD + "@@ -1,2 +1,4 @@\n line 1\n+new\n+new\n line 2\n"
       "@@ -14,3 +16,3 @@\n line 14\n-line 15\n+line XV\n line 16\n",
       tree(f=N20.replace(b"line 1\n", b"line 1\nnew\nnew\n", 1).replace(b"line 15", b"line XV")),
       "exact exact"),
    ok("u0-change", "no context: the removed line is at the stated place", F,
       HEAD + "@@ -7 +7 @@\n-line 7\n+line seven\n", DONE, "exact"),
    ok("u0-change-moved", "no context: it stands at one place", tree(f=b"new\n" + N20),
       HEAD + "@@ -7 +7 @@\n-line 7\n+line seven\n", tree(f=b"new\n" + SEVEN), "offset"),
    ok("u0-delete", "a line goes, without context", F, HEAD + "@@ -7 +6,0 @@\n-line 7\n",
       tree(f=N20.replace(b"line 7\n", b"")), "exact"),
    refused("u0-insert", "an insertion without context", F, HEAD + "@@ -7,0 +8 @@\n+new\n",
            stricter="GNU patch believes the number, git puts it at the end"),
    ok("u0-insert-blob", "the same, and the file is the very one", F,
       git(f"index {blob(N20)}..1111111 100644", "--- a/f", "+++ b/f")
       + "@@ -7,0 +8 @@\n+new\n", tree(f=N20.replace(b"line 8\n", b"new\nline 8\n")), "exact",
       differs="git ties an insertion without context to the end of the file"),
    ok("u0-insert-empty", "an insertion into an empty file", tree(f=""),
       HEAD + "@@ -0,0 +1 @@\n+new\n", tree(f="new\n"), "exact"),
]

TWICE = [
    already("already", "the whole patch is there", DONE, STANDARD, "already-applied"),
    already("already-moved", "there, and moved", tree(f=b"new\n" + SEVEN), STANDARD,
            "already-applied"),
    rejected("already-in-part", "one hunk is there, one is not",
             tree(f=SEVEN),
             STANDARD + "@@ -14,3 +14,3 @@\n line 14\n-line 15\n+line XV\n line 16\n",
             "already-applied exact"),
    already("already-other-twin", "done here; the same text further down is not the place",
            tree(f=SEVEN + N20), STANDARD, "already-applied",
            stricter="the peers put it into the twin"),
    already("already-beside-copy", "the context of an insertion still matches beside its copy",
            tree(f="{\n}\n\n" + "g {\n}\n\n" + "h {\n}\n"),
            HEAD + "@@ -2,3 +2,6 @@\n }\n \n+g {\n+}\n+\n h {\n", "already-applied",
            stricter="the peers put the lines in a second time"),
    ok("repeat-allowed", "the same, and the header allows it",
       tree(f="{\n}\n\n" + "g {\n}\n\n" + "h {\n}\n"),
       "Subject: again\nAllow-Repeat: yes\n\n" + HEAD
       + "@@ -5,3 +5,6 @@\n }\n \n+g {\n+}\n+\n h {\n",
       tree(f="{\n}\n\n" + "g {\n}\n\n" * 2 + "h {\n}\n"), "exact"),
    already("create-exists-same", "a file without /dev/null, there with just this content",
            tree(n="one\ntwo\n"), "--- a/n\n+++ b/n\n" + MAKES_N, "already-applied",
            stricter="GNU patch puts the lines in a second time"),
    already("create-null-exists-same", "created, and there with just this content",
            tree(n="one\ntwo\n"), "--- /dev/null\n+++ b/n\n" + MAKES_N, "already-applied"),
    already("delete-gone", "deleted, and not there", F, "--- a/n\n+++ /dev/null\n" + DROPS_N,
            "already-applied"),
    already("rename-done", "renamed already", tree(new=N20), git(
        "similarity index 100%", "rename from old", "rename to new", old="old", new="new"),
            stricter="GNU patch finds nothing to do and is content"),
    already("mode-done", "executable already", tree(f=regular(N20, "x")),
            git("old mode 100644", "new mode 100755"), stricter="git only warns"),
    ok("same-file-twice", "the second section sees what the first made", F,
       STANDARD + HEAD + "@@ -6,3 +6,3 @@\n line 6\n-line seven\n+line VII\n line 8\n",
       tree(f=N20.replace(b"line 7", b"line VII")), "exact exact"),
    refused("undone", "the second section undoes the first", F,
            STANDARD + HEAD + "@@ -6,3 +6,3 @@\n line 6\n-line seven\n+line 7\n line 8\n",
            stricter="a patch that changes nothing is no patch"),
    ok("created-then-changed", "made and changed in one patch", F,
       "--- /dev/null\n+++ b/n\n" + MAKES_N + "--- a/n\n+++ b/n\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
       F | tree(n="one\n2\n"), "exact exact"),
    ok("deleted-then-created", "gone and made again", tree(n="one\ntwo\n"),
       "--- a/n\n+++ /dev/null\n" + DROPS_N + "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+three\n",
       tree(n="three\n"), "exact exact"),
]

WHOLE = [
    ok("create", "a new file", F, "--- /dev/null\n+++ b/d/n\n" + MAKES_N,
       F | tree(d__n="one\ntwo\n"), "exact"),
    ok("create-epoch", "the old side is dated at the epoch", F,
       "--- a/n\t1970-01-01 00:00:00.000000000 +0000\n+++ b/n\t2020-01-02 00:00:00 +0000\n"
       + MAKES_N,
       F | tree(n="one\ntwo\n")),
    rejected("create-epoch-zone-exists", "the epoch in another zone, and the file is there",
             tree(n="other\n"),
             "--- a/n\t1969-12-31 16:00:00.000000000 -0800\n+++ b/n\t2020-01-02 00:00:00 -0800\n"
             + MAKES_N, "conflict", stricter="GNU patch inserts into the file"),
    ok("both-epoch", "every file is dated at the epoch; the lines say that it is there", F,
       "--- a/f\t1970-01-01 00:00:00 +0000\n+++ b/f\t1970-01-01 00:00:00 +0000\n" + HUNK, DONE),
    ok("create-undated", "no lines before, and no file", F, "--- a/n\n+++ b/n\n" + MAKES_N,
       F | tree(n="one\ntwo\n")),
    rejected("create-exists", "created, and another file is there", tree(n="other\n"),
             "--- /dev/null\n+++ b/n\n" + MAKES_N, "conflict",
             stricter="GNU patch inserts the lines above the others"),
    rejected("create-exists-empty", "created, and an empty file is there", tree(n=""),
             "--- /dev/null\n+++ b/n\n" + MAKES_N, "conflict", stricter="GNU patch fills it"),
    refused("create-with-old-lines", "created, yet with lines to remove", F,
            "--- /dev/null\n+++ b/f\n" + HUNK, stricter="GNU patch takes it for a change"),
    ok("delete", "a file and its directory go", F | tree(d__n="one\ntwo\n"),
       "--- a/d/n\n+++ /dev/null\n" + DROPS_N, F, "exact"),
    ok("delete-epoch", "the new side is dated at the epoch", F | tree(n="one\ntwo\n"),
       "--- a/n\t2020-01-02 00:00:00 +0000\n+++ b/n\t1970-01-01 01:00:00.000000000 +0100\n"
       + DROPS_N,
       F),
    ok("emptied", "every line goes, and nothing says that the file does", F | tree(n="one\ntwo\n"),
       "--- a/n\t2020-01-02 00:00:00 +0000\n+++ b/n\t2020-01-03 00:00:00 +0000\n" + DROPS_N,
       F | tree(n="")),
    rejected("delete-differs", "deleted, and more is in it", tree(n="one\ntwo\nthree\n"),
             "--- a/n\n+++ /dev/null\n" + DROPS_N, "conflict"),
    ok("git-new-empty", "a new empty file", F,
       git("new file mode 100644", "index 0000000..e69de29", old="e", new="e"), F | tree(e="")),
    ok("git-delete-empty", "an empty file goes", F | tree(e=""),
       git("deleted file mode 100644", "index e69de29..0000000", old="e", new="e"), F),
    rejected("git-delete-empty-differs", "an empty file goes, which is not empty",
             F | tree(e="x\n"),
             git("deleted file mode 100644", "index e69de29..0000000", old="e", new="e")),
    ok("git-new-executable", "a new script", F,
       git("new file mode 100755", "index 0000000..1111111", "--- /dev/null", "+++ b/n", old="n",
           new="n") + MAKES_N, F | tree(n=regular("one\ntwo\n", "x"))),
    rejected("parent-is-file", "a file stands where a directory is needed", F,
             "--- /dev/null\n+++ b/f/n\n" + MAKES_N),
    rejected("target-is-directory", "a directory stands where the file is to go",
             tree(d__x="1\n"), "--- /dev/null\n+++ b/d\n" + MAKES_N),
    rejected("clash-within", "one section makes d/x, the next one d", {},
             "--- /dev/null\n+++ b/d/x\n" + MAKES_N + "--- /dev/null\n+++ b/d\n" + MAKES_N),
    ok("file-to-directory", "a file becomes a directory", tree(d="one\ntwo\n"),
       "--- a/d\n+++ /dev/null\n" + DROPS_N + "--- /dev/null\n+++ b/d/x\n" + MAKES_N,
       tree(d__x="one\ntwo\n")),
]

GIT = [
    ok("rename", "a pure rename", tree(old=N20), git(
        "similarity index 100%", "rename from old", "rename to new", old="old", new="new"),
       tree(new=N20)),
    ok("rename-edit", "a rename with an edit, into a directory", tree(old=N20), git(
        "similarity index 90%", "rename from old", "rename to d/new", "--- a/old", "+++ b/d/new",
        old="old", new="d/new") + HUNK, tree(d__new=SEVEN), "exact"),
    rejected("rename-onto", "onto a file that is there", tree(old=N20, new="other\n"), git(
        "similarity index 100%", "rename from old", "rename to new", old="old", new="new"),
             stricter="GNU patch overwrites it"),
    ok("rename-swap", "two files change names", tree(a="1\n", b="2\n"),
       git("similarity index 100%", "rename from a", "rename to b", old="a", new="b")
       + git("similarity index 100%", "rename from b", "rename to a", old="b", new="a"),
       tree(a="2\n", b="1\n")),
    refused("rename-after-edit", "edited in one section, renamed in the next", tree(old=N20),
       git("index 1111111..2222222 100644", "--- a/old", "+++ b/old", old="old", new="old") + HUNK
       + git("similarity index 100%", "rename from old", "rename to new", old="old", new="new"),
       stricter="the peers rename the old content and keep the edited file"),
    ok("copy-after-edit", "edited in one section; the copy is of what the patch found",
       tree(old=N20),
       git("index 1111111..2222222 100644", "--- a/old", "+++ b/old", old="old", new="old") + HUNK
       + git("similarity index 100%", "copy from old", "copy to new", old="old", new="new"),
       tree(old=SEVEN, new=N20), "exact"),
    ok("created-then-renamed", "made in one section, renamed in the next", F,
       "--- /dev/null\n+++ b/n\n" + MAKES_N
       + git("similarity index 100%", "rename from n", "rename to m", old="n", new="m"),
       F | tree(m="one\ntwo\n"), "exact", looser="the peers look for n in the tree"),
    ok("rename-chain", "a to b, b to c", tree(a="1\n", b="2\n"),
       git("similarity index 100%", "rename from a", "rename to b", old="a", new="b")
       + git("similarity index 100%", "rename from b", "rename to c", old="b", new="c"),
       tree(b="1\n", c="2\n")),
    refused("rename-out", "a rename out of the tree", F, git(
        "similarity index 100%", "rename from f", "rename to ../../evil", new="../../evil")),
    refused("rename-inconsistent", "the lines below the rename name another file", tree(old=N20),
            git("rename from old", "rename to new", "--- a/other", "+++ b/new", old="old",
                new="new") + HUNK, stricter="GNU patch does not compare the names"),
    rejected("rename-missing", "neither name is there", F, git(
        "similarity index 100%", "rename from old", "rename to new", old="old", new="new")),
    ok("rename-mode", "a rename that makes executable", tree(old=N20), git(
        "old mode 100644", "new mode 100755", "similarity index 100%", "rename from old",
        "rename to new", old="old", new="new"), tree(new=regular(N20, "x"))),
    ok("copy", "a pure copy", tree(old=N20), git(
        "similarity index 100%", "copy from old", "copy to new", old="old", new="new"),
       tree(old=N20, new=N20)),
    ok("copy-edit", "a copy with an edit", tree(old=N20), git(
        "similarity index 90%", "copy from old", "copy to new", "--- a/old", "+++ b/new", old="old",
        new="new") + HUNK, tree(old=N20, new=SEVEN), "exact"),
    already("copy-done", "copied already", tree(old=N20, new=SEVEN), git(
        "similarity index 90%", "copy from old", "copy to new", "--- a/old", "+++ b/new", old="old",
        new="new") + HUNK, "already-applied", stricter="GNU patch overwrites the copy"),
    rejected("copy-onto", "onto another file", tree(old=N20, new="x\n"), git(
        "similarity index 100%", "copy from old", "copy to new", old="old", new="new"),
             stricter="GNU patch overwrites it"),
    ok("mode", "a file becomes executable", F, git("old mode 100644", "new mode 100755"),
       tree(f=regular(N20, "x"))),
    ok("mode-edit", "executable and edited", F, git(
        "old mode 100644", "new mode 100755", "index 1111111..2222222", "--- a/f", "+++ b/f")
       + HUNK,
       tree(f=regular(SEVEN, "x"))),
    refused("mode-index-differs", "the index line says executable, the file is not", F, git(
        "index 1111111..2222222 100755", "--- a/f", "+++ b/f") + HUNK,
            stricter="git only warns, GNU patch does not look"),
    refused("mode-old-differs", "the mode is there already, the edit is not",
            tree(f=regular(N20, "x")), git(
                "old mode 100644", "new mode 100755", "index 1111111..2222222", "--- a/f",
                "+++ b/f") + HUNK, stricter="git only warns"),
    refused("mode-delete-differs", "deleted as executable, which it is not", tree(n="one\ntwo\n"),
            git("deleted file mode 100755", "index 1111111..0000000", "--- a/n", "+++ /dev/null",
                old="n", new="n") + DROPS_N, stricter="git only warns"),
    refused("mode-unknown", "a submodule", F, git(
        "new file mode 160000", "index 0000000..1111111", "--- /dev/null", "+++ b/sub", old="sub",
        new="sub") + "@@ -0,0 +1 @@\n+Subproject commit 1111111111111111111111111111111111111111\n",
            stricter="git records it in the index"),
    refused("mode-same", "a mode change from a mode to itself", F,
            git("old mode 100644", "new mode 100644"), stricter="it changes nothing"),
    refused("index-only", "a section that says nothing", F,
            git("index 1111111..2222222 100644"), stricter="it changes nothing"),
    ok("git-new-blob-exact", "a name with ' b/' in it", {"x b/y": regular(N20)},
       "diff --git a/x b/y b/x b/y\n--- a/x b/y\n+++ b/x b/y\n" + HUNK, {"x b/y": regular(SEVEN)}),
]

LINK = "\n\\ No newline at end of file\n"


def link_section(*lines: str, name: str = "l") -> str:
    return git(*lines, old=name, new=name)


LINKS = [
    ok("link-create", "a new symlink", F, link_section(
        "new file mode 120000", "index 0000000..1111111", "--- /dev/null", "+++ b/l")
       + "@@ -0,0 +1 @@\n+f" + LINK, F | tree(l=regular("f", "l"))),
    ok("link-change", "a symlink points elsewhere", F | tree(l=regular("f", "l")), link_section(
        "index 1111111..2222222 120000", "--- a/l", "+++ b/l")
       + "@@ -1 +1 @@\n-f" + LINK + "+g" + LINK, F | tree(l=regular("g", "l"))),
    ok("link-delete", "a symlink goes", F | tree(l=regular("f", "l")), link_section(
        "deleted file mode 120000", "index 1111111..0000000", "--- a/l", "+++ /dev/null")
       + "@@ -1 +0,0 @@\n-f" + LINK, F),
    ok("link-from-file", "a file becomes a symlink", tree(f=N20, n="one\ntwo\n"), link_section(
        "deleted file mode 100644", "index 1111111..0000000", "--- a/n", "+++ /dev/null", name="n")
       + DROPS_N + link_section("new file mode 120000", "index 0000000..2222222", "--- /dev/null",
                                "+++ b/n", name="n") + "@@ -0,0 +1 @@\n+f" + LINK,
       F | tree(n=regular("f", "l"))),
    refused("link-out", "a symlink out of the tree", F, link_section(
        "new file mode 120000", "index 0000000..1111111", "--- /dev/null", "+++ b/l")
            + "@@ -0,0 +1 @@\n+../etc" + LINK, stricter="git writes it"),
    refused("link-absolute", "a symlink to an absolute path", F, link_section(
        "new file mode 120000", "index 0000000..1111111", "--- /dev/null", "+++ b/l")
            + "@@ -0,0 +1 @@\n+/etc/passwd" + LINK, stricter="the peers write it"),
    refused("link-target", "the file to change is a symlink",
            tree(real=N20, f=regular("real", "l")), STANDARD),
    refused("link-parent", "the path goes through a symlink",
            tree(real__f=N20, d=regular("real", "l")), "--- a/d/f\n+++ b/d/f\n" + HUNK,
            stricter="GNU patch follows links that stay in the tree"),
    refused("link-parent-create", "a new file behind a symlink",
            tree(real__f=N20, d=regular("real", "l")), "--- /dev/null\n+++ b/d/n\n" + MAKES_N,
            stricter="GNU patch follows links that stay in the tree"),
    refused("link-then-through", "a symlink made by the patch itself, then a file behind it",
            tree(real__f=N20), link_section(
                "new file mode 120000", "index 0000000..1111111", "--- /dev/null", "+++ b/d",
                name="d") + "@@ -0,0 +1 @@\n+real" + LINK + "--- /dev/null\n+++ b/d/n\n" + MAKES_N,
            stricter="GNU patch follows links that stay in the tree"),
    refused("link-expected", "the patch is for a symlink, the file is none", F, git(
        "index 1111111..2222222 120000", "--- a/f", "+++ b/f") + HUNK,
            stricter="GNU patch does not look at the index line"),
    rejected("link-create-exists", "created, and a symlink is there", tree(n=regular("f", "l")),
             "--- /dev/null\n+++ b/n\n" + MAKES_N, "conflict"),
]


def undo(name: str, about: str, before: Tree, patch: str | bytes, then: Tree, **more) -> Case:
    return ok(name, about, before, patch, then, reverse=True, **more)


REVERSED = [
    undo("R-plain", "undone", DONE, STANDARD, F),
    undo("R-create", "an undone creation deletes", F | tree(n="one\ntwo\n"),
         "--- /dev/null\n+++ b/n\n" + MAKES_N, F),
    undo("R-delete", "an undone deletion creates", F, "--- a/n\n+++ /dev/null\n" + DROPS_N,
         F | tree(n="one\ntwo\n")),
    undo("R-rename", "an undone rename", tree(new=SEVEN), git(
        "similarity index 90%", "rename from old", "rename to new", "--- a/old", "+++ b/new",
        old="old", new="new") + HUNK, tree(old=N20)),
    undo("R-copy", "an undone copy deletes", tree(old=N20, new=SEVEN), git(
        "similarity index 90%", "copy from old", "copy to new", "--- a/old", "+++ b/new", old="old",
        new="new") + HUNK, tree(old=N20), looser="the peers have no notion of it",
         differs="the peers copy back"),
    undo("R-mode", "an undone mode change", tree(f=regular(N20, "x")),
         git("old mode 100644", "new mode 100755"), F),
    undo("R-newline", "the newline comes back", tree(f="a\nb\nc"),
         HEAD + "@@ -1,3 +1,3 @@\n a\n b\n-c\n+c\n\\ No newline at end of file\n",
         tree(f="a\nb\nc\n")),
    already("R-already", "never applied", F, STANDARD, "already-applied", reverse=True),
    rejected("R-create-differs", "an undone creation of a file that has changed",
             tree(n="one\nTWO\n"), "--- /dev/null\n+++ b/n\n" + MAKES_N, "conflict", reverse=True),
]

CASES = [*NAMES, *FORMATS, *COUNTS, *ENDS, *PLACES, *TWICE, *WHOLE, *GIT, *LINKS, *REVERSED]
