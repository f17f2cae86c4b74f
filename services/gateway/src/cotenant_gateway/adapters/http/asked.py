"""What a request asks for, read strictly, and how an answer leaves."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from cotenant_gateway.adapters.http.port import Api
from cotenant_gateway.core import strict_json
from cotenant_gateway.core.errors import ApiError, bad_request

API: Final = web.AppKey("api", Api)
_ALL: Final = "-"
_DIGITS: Final = 12
_BODY_S: Final = 30.0


def api(request: web.Request) -> Api:
    return request.app[API]


def flag(request: web.Request, *names: str) -> bool:
    """True for ``?name``, ``?name=true`` and ``?name=1``."""
    for name in names:
        value = request.query.get(name)
        if value is None:
            continue
        if value.lower() not in ("", "true", "1", "false", "0"):
            raise bad_request(f"expected true or false, got {value!r}", name)
        return value.lower() in ("", "true", "1")
    return False


def dry_run(request: web.Request) -> bool:
    return flag(request, "dry_run", "dryRun")


def number(request: web.Request, name: str, high: int) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) <= high):
        raise bad_request(f"expected a whole number from 0 to {high}, got {text!r}", name)
    return int(text)


def namespace(request: web.Request) -> str | None:
    value = request.match_info["namespace"]
    return None if value == _ALL else value


def answer(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, text=json.dumps(body) + "\n", content_type="application/json")


async def body_text(request: web.Request, types: tuple[str, ...]) -> str:
    """Requiring a type that no HTML form can send keeps other sites' pages out."""
    if request.content_type not in types:
        raise ApiError(415, "UnsupportedMediaType", f"expected {' or '.join(types)}, got {request.content_type!r}")
    try:
        async with asyncio.timeout(_BODY_S):
            raw = await request.read()
    except TimeoutError as error:
        raise ApiError(408, "Timeout", f"expected the whole body within {_BODY_S:g} s") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8: byte {error.start} cannot be read") from error


async def body_json(request: web.Request) -> Mapping[str, Any]:
    text = await body_text(request, ("application/json",))
    try:
        body = strict_json.parse(text or "{}", parse_float=str)
    except ValueError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request(f"expected a JSON object, got {type(body).__name__}")
    return body


async def optional_body(request: web.Request) -> Mapping[str, Any]:
    return await body_json(request) if request.can_read_body else {}


def sentence(body: Mapping[str, Any], field: str, default: str) -> str:
    """Raise ApiError when it is no string."""
    text = body.get(field) or default
    if not isinstance(text, str):
        raise bad_request("expected a sentence", field)
    return text
