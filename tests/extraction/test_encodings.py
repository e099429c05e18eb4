"""Text in the encodings of its language."""

import pytest

from tests.extraction.conftest import Read, content_of


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "L’été dernier, à la fenêtre, où l’œuvre « Été » était déjà exposée."),
        ("cp1252", "Hän söi eilen leipää, eikä tämä ollut hänestä hyvää."),
        ("cp1252", "Äldre människor åt på kaféet: “två räkor”."),
        ("cp1252", "5 × 3 ± 2 µm, said Zoë Müller, née Nuñez."),
        ("cp1250", "Česko je vnitrozemský stát ve střední Evropě, jehož městem je Praha."),
        ("cp1250", "Őszi hűvös időben sűrű köd ül a völgyben."),
        ("iso8859-2", "Žlutý kůň šel přes dvůr."),
        ("cp1254", "Şişli'de ığdır ağacının altında oturdu, çünkü yağmur yağıyordu."),
        ("cp1257", "Žąsys ir šuo šį rytą ėjo į mišką."),
    ],
)
def test_a_language_tells_its_encoding(read: Read, encoding: str, text: str) -> None:
    assert content_of(read(".txt", text.encode(encoding))).text == text
