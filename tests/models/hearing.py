"""Whisper's real weights against faster-whisper: texts, times of segments and of words.

    python tests/models/hearing.py WORKER CACHE NAME=CTRANSLATE2_FOLDER...

Speech is espeak-ng's. Prints a line for each model and sound; fails below 95 % of the segments.
"""

import json
import subprocess
import sys
from pathlib import Path

from faster_whisper import WhisperModel

LIGHTHOUSES = """The history of lighthouses begins with fires on hilltops. Sailors needed a mark that they could see from far
away. A new tower was built on a rock in the sea, and it stood for more than one hundred years. Modern lights turn slowly, and
every lighthouse has its own rhythm. Captains know the rhythm by heart. When fog comes, a deep horn takes the place of the
light. It can be heard for many miles. Today most of the towers stand empty. Machines do the work that people did before. Some
houses are now small hotels, where guests sleep beside the old stairs and listen to the wind and the waves. On Sunday morning
the keeper climbs up one more time. He cleans the glass, writes a few lines into his book, and looks at the horizon."""
GERMAN = """Guten Morgen. Heute ist ein schöner Tag. Wir gehen zusammen in den Wald und suchen Pilze. Am Abend kochen wir eine Suppe."""
SOUNDS = {
    "long": ("en-us", 140, LIGHTHOUSES, None),
    "quick": ("en-gb", 175, "Please send the report before noon. The meeting begins at two, and everybody is invited.", None),
    "german": ("de", 140, GERMAN, "de"),
}
SHARE = .95
STEP = .0201


def close(one, other):
    return abs(one - other) <= STEP


def compare(theirs, ours):
    """Segments that are the same, and words with the same times."""
    same = sum(one.text == other["text"] and close(one.start, other["start"]) and close(one.end, other["end"])
               for one, other in zip(theirs, ours["segments"]))
    words = [word for segment in theirs for word in segment.words]
    timed = sum(close(one.start, other["start"]) and close(one.end, other["end"])
                for one, other in zip(words, ours["words"]))
    return same, max(len(theirs), len(ours["segments"])), timed, max(len(words), len(ours["words"]))


def main(worker, cache, *models):
    failed = False
    for name, folder in (model.split("=") for model in models):
        reference = WhisperModel(folder, device="cpu", compute_type="float32")
        for sound, (voice, speed, text, language) in SOUNDS.items():
            if language and not reference.model.is_multilingual:
                continue
            path = Path(cache) / f"{sound}.wav"
            subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", path, text], check=True)
            given = ["--language", language] if language else []
            run = subprocess.run([worker, "-q", "transcribe", path, "--model", Path(cache) / name, "--json", "--words", *given],
                                 check=True, capture_output=True)
            segments, _ = reference.transcribe(str(path), beam_size=1, language=language, word_timestamps=True)
            same, count, timed, words = compare(list(segments), json.loads(run.stdout))
            is_good = same >= SHARE * count
            failed |= not is_good
            print(f"{name} {sound}: {same} of {count} segments, {timed} of {words} words"
                  f"{'' if is_good else ': too few'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
