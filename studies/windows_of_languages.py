"""Which ends of sentences do rules of one language and of four find, and what becomes of windows?

    python -m studies.windows_of_languages de=FOLDER fr=FOLDER es=FOLDER

The folders have long texts, such as those of the packages manpages-de, -fr and -es of Debian, made
by ``groff -man -Kutf8 -Tutf8 -P-cbou -rLL=4000n -rHY=0``; the five first of more than 30,000
characters are taken. A word is added at three places of each, and each is cut into halves.
"""

import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing import sentences
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.windows import split

SENTENCES = {
    "de": """
        Wir sahen z. B. den Hund im Garten.
        Er wohnt in der Goethestr. 5 in Köln, d. h. am Rhein.
        Im 19. Jahrhundert war das anders.
        Am 3. Mai 2004 kam Dr. Müller nach Berlin.
        Siehe Abb. 4 und Nr. 12 des Gesetzes.
        Nach § 5 Abs. 2 BGB gilt dies bzw. das.
        Es waren ca. 20 Leute da.
        Prof. Schmidt und Hr. Weber sprachen u. a. über Geld.
        Die Fa. Meier GmbH liefert ggf. morgen.
        Vgl. S. 12 ff. der Ausgabe.
        Äpfel, Birnen usw. sind Obst.
        Das kostet max. 5 Euro inkl. Steuer.
        Der 2. Weltkrieg endete 1945.
        Sie kam am 15. Oktober zurück.
    """,
    "fr": """
        M. Dupont est venu hier.
        Mme. Durand et le Dr. Martin parlent.
        Voir l'art. 5 du code civ. français.
        Il habite av. Foch, n° 5.
        Cf. p. 12 du vol. 3.
        Les pommes, les poires, etc. sont des fruits.
        J.-C. Martin est né au XIXe s. à Paris.
        Env. 20 personnes sont là.
        Le par. 4 et l'al. 2 suffisent.
        La St. Michel est en sept. 2004.
        Voir fig. 3 et éd. 2.
        Il pèse max. 5 kg.
    """,
    "es": """
        El Sr. García llegó ayer.
        La Sra. López y el Dr. Ruiz hablan.
        Véase el art. 5 de la ley.
        Vive en la Avda. Mayor 5.
        Cf. pág. 12 del vol. 3.
        Manzanas, peras, etc. son frutas.
        EE. UU. Firmó el tratado.
        Unos aprox. 20 vinieron.
        El núm. 4 es de D. Juan.
        Ud. Puede venir.
        La fig. 3 y el cap. 2.
        El s. XIX fue largo.
    """,
    "en": """
        Dr. Smith went to Washington, D.C. on Jan. 5th.
        They met Mr. Doe (cf. Fig. 3).
        It ended.
        We use Eq. 5 and vol. 3 here.
        The U.S. Army left.
        See e.g. the list, i.e. all of it.
        Apples, pears, etc. are fruit.
        He likes art.
        She works out daily.
        The answer is no.
        Come on in.
        It was his par.
    """,
}
FOUR = sentences.TOGETHER


def main() -> None:
    for language, held in SENTENCES.items():
        lines = held.strip().splitlines()
        own = [line.strip() for line in lines]
        for rules in (("en",), (language,), FOUR):
            sentences.TOGETHER = rules
            text = " ".join(own)
            edges = [0, *sentences.sentence_starts(text, rules[0]), len(text)]
            found = {end for _, end in pairwise(edges)} - {len(text)}
            true = {len(" ".join(own[:n])) + 1 for n in range(1, len(own))}
            print(
                language, rules, len(true), "false", len(found - true), "hidden", len(true - found)
            )
    for argument in sys.argv[1:]:
        language, _, folder = argument.partition("=")
        texts = [path.read_text() for path in sorted(Path(folder).iterdir())]
        texts = [text for text in texts if len(text) > 30_000][:5]
        for rules in (("en",), (language,), FOUR):
            sentences.TOGETHER = rules
            tokenizer = DocumentTokenizer(DEFAULT_BUNDLE / "tokenizer.json", 512, rules[0])
            measured = [edits(tokenizer, text) for text in texts]
            print(language, rules, [round(mean(column), 3) for column in zip(*measured)])


def windows(tokenizer: DocumentTokenizer, text: str) -> list[str]:
    return [text[w.start : w.end].strip() for w in split(tokenizer, text, tokenizer.encode(text))]


def edits(tokenizer: DocumentTokenizer, text: str) -> tuple[int, float, float]:
    """Windows, changed windows an edit, and the share of the halves' windows that the whole has."""
    whole = windows(tokenizer, text)
    changed = []
    for quarter in range(1, 4):
        at = text.find(" ", len(text) * quarter // 4)
        made = windows(tokenizer, text[:at] + " and" + text[at:])
        changed.append(sum(one not in whole for one in made))
    at = text.find(" ", len(text) // 2)
    halves = [windows(tokenizer, half) for half in (text[:at], text[at:])]
    return len(whole), mean(changed), mean(one in whole for half in halves for one in half)


main()
