"""Where the Pub/Sub emulator lies: in the Google Cloud SDK, which is found without running gcloud."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

LAUNCHER = Path("platform", "pubsub-emulator", "bin", "cloud-pubsub-emulator")
JAVA_OPTIONS = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # small: it holds what is not acknowledged yet
USUAL_PLACES = (
    "~/google-cloud-sdk",
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/usr/local/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/opt/homebrew/share/google-cloud-sdk",
    "/usr/local/share/google-cloud-sdk",
    "/snap/google-cloud-cli/current",
    "/snap/google-cloud-sdk/current",
)


class Missing(Exception):
    """Something has to be installed first; the message says what, and how."""


def pubsub_command(host: str, port: int, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command that becomes the emulator (it execs Java: ending it ends the emulator). Raises Missing."""
    sdk = find_sdk(environment)
    check_java(environment)
    return [str(sdk / LAUNCHER), f"--host={host}", f"--port={port}"]


def find_sdk(environment: Mapping[str, str] = os.environ) -> Path:
    """The root of a Google Cloud SDK that has the Pub/Sub emulator. Raises Missing."""
    roots = list(dict.fromkeys(_roots(environment)))
    for root in roots:
        if os.access(root / LAUNCHER, os.X_OK):
            return root
    if not roots:
        raise Missing(
            "there is no Google Cloud SDK here, which has the Pub/Sub emulator: install it "
            "(https://cloud.google.com/sdk/docs/install), or name its folder in CLOUDSDK_ROOT_DIR"
        )
    raise Missing(
        f"the Google Cloud SDK in {roots[0]} has no Pub/Sub emulator: gcloud components install pubsub-emulator "
        "(or, where gcloud came from a Debian package: apt-get install google-cloud-cli-pubsub-emulator)"
    )


def _roots(environment: Mapping[str, str]) -> Iterator[Path]:
    """Folders that are an SDK, the most deliberate choice first."""
    named = environment.get("CLOUDSDK_ROOT_DIR")
    gcloud = shutil.which("gcloud", path=environment.get("PATH"))
    places = [Path(named)] if named else []
    if gcloud:
        places.append(Path(gcloud).resolve().parent.parent)
    home = environment.get("HOME", "~")
    places += [Path(place.replace("~", home, 1)) for place in USUAL_PLACES]
    yield from (place for place in places if (place / "platform").is_dir())


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raise Missing unless the launcher will find a Java."""
    home = environment.get("JAVA_HOME")
    if home:
        if not os.access(Path(home, "bin", "java"), os.X_OK):
            raise Missing(f"JAVA_HOME is {home}, where there is no bin/java: correct it, or unset it")
    elif shutil.which("java", path=environment.get("PATH")) is None:
        raise Missing(
            "there is no java on the PATH, which the Pub/Sub emulator needs (version 11 or later): install one "
            "(for example: apt-get install default-jre-headless), or name its folder in JAVA_HOME"
        )


def java_options(environment: Mapping[str, str] = os.environ) -> str:
    """JAVA_OPTS for the emulator: a small heap, and then what the user wants."""
    return f"{JAVA_OPTIONS} {environment.get('JAVA_OPTS', '')}".strip()


def came_up(said: str, port: int) -> bool | None:
    """Whether the emulator, from what it has said, listens on ``port``: None while it is not known.

    One that fails stays alive, and another server on its port would answer for it: only its words tell.
    """
    if 'Exception in thread "main"' in said:
        return False
    return True if f"listening on {port}\n" in said else None
