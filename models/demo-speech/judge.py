"""What `demo-hearing` hears of a sentence that `demo-speech` spoke.

    python judge.py "hello world"    speaks, writes out/judged.wav and prints what is heard
"""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def small_listener():
    """Hears samples at 16 kHz, by transformers and the folder beside this one."""
    folder = HERE.parent / "demo-hearing"
    sys.path.insert(1, str(folder))
    # Both folders have a file of this name.
    spec = importlib.util.spec_from_file_location("hearing_judge", folder / "judge.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    listener = module.Listener()
    return lambda samples: listener.hear(samples).split()


if __name__ == "__main__":
    import export
    from files import write_wave

    samples, times = export.say(export.reference_network(), sys.argv[1].split())
    write_wave(HERE / "out" / "judged.wav", samples, 16000)
    print(" ".join(small_listener()(samples)), times)
