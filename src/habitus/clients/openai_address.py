"""Where an OpenAI-compatible server is, and its key, with nothing secret in anything that is kept."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from habitus.errors import InputError

DEFAULT_URL = "https://api.openai.com/v1"
"""Where requests go when no address is given."""
DEFAULT_KEY = "OPENAI_API_KEY"
"""Environment variable of the key when no other is named."""


@dataclass(frozen=True)
class Address:
    """Where a server is, without anything secret."""

    url: str
    """The base URL."""
    host: str
    """Host, with the port where one is given."""
    loopback: bool
    """Whether it is on this machine."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Check a base URL.

        Raises:
            InputError: When it is none, or holds a password or a query. Neither is repeated.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise InputError(
                "--base-url is no address of a server; write it like http://127.0.0.1:8000/v1"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise InputError(
                f"--base-url (host {host}) must hold no user, password or query, which would end up "
                "in run files; put the key into an environment variable and name it with "
                "--api-key-env"
            )
        shown = f"[{host}]" if ":" in host else host
        return cls(url.strip(), f"{shown}:{port}" if port else shown, _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_key(address: Address, variable: str | None) -> str | None:
    """Return the key of a server, or None for one on this machine that needs none.

    Args:
        address: The server.
        variable: Name of the environment variable that holds the key.

    Raises:
        InputError: When there is none, or it cannot be sent. Keys are never repeated.
    """
    if variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise InputError(
            "--api-key-env takes the name of an environment variable, such as "
            f"{DEFAULT_KEY}, not the key itself"
        )
    name = variable or DEFAULT_KEY
    key = os.environ.get(name, "").strip()
    if not key:
        if address.loopback and variable is None:
            return None
        raise InputError(
            f"the environment variable {name} holds no key for {address.host}; set it, or name "
            "another with --api-key-env"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"the key in {name} has characters that no key has; set it again")
    return key
