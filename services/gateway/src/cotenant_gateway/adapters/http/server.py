"""The HTTP server: middleware around the route table."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from cotenant_common.bus.protocol import BusUnavailableError
from cotenant_common.telemetry.logging import get_logger
from cotenant_gateway.adapters.http.asked import API
from cotenant_gateway.adapters.http.auth import Guard, read_token
from cotenant_gateway.adapters.http.port import Api
from cotenant_gateway.adapters.http.routes import ROUTES
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core.errors import ApiError, unavailable

_OPEN_PATHS: Final = ("/healthz",)
_STOP_S: Final = 1.0
_log = get_logger("gateway")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiServer:
    def __init__(self, api: Api, settings: GatewaySettings) -> None:
        """Raise SettingsError when the settings would let strangers in."""
        self._settings = settings
        token = read_token(settings.api_token_file, settings.api_host)
        self._guard = Guard(token, settings.allowed_origins)
        self._runner = web.AppRunner(self._application(api), access_log=None, shutdown_timeout=_STOP_S)

    async def start(self) -> int:
        """Listen; return the port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._settings.api_host, self._settings.api_port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    def _application(self, api: Api) -> web.Application:
        application = web.Application(
            client_max_size=self._settings.max_body_bytes, middlewares=[self._answer_errors, self._admit]
        )
        application[API] = api
        for route in ROUTES:
            application.router.add_route(route.method, route.path, route.handler)
        return application

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN_PATHS:
            self._guard.check(request.headers)
        return await handler(request)

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except ApiError as error:
            return error_response(error)
        except BusUnavailableError as error:
            return error_response(unavailable(f"the bus does not answer: {error}"))
        except web.HTTPException as error:
            return error_response(self._translate(request, error))
        except Exception:  # noqa: BLE001 - a bug in one request must not show its inside, nor end the server
            _log.exception("request_failed", method=request.method, path=request.path)
            return error_response(ApiError(500, "Internal", "the gateway failed on this request; its log says why"))
        if not response.prepared:
            response.headers.setdefault("Cache-Control", "no-store")
            response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    def _translate(self, request: web.Request, error: web.HTTPException) -> ApiError:
        match error.status:
            case 404:
                return ApiError(
                    404, "NotFound", f"there is nothing at {request.path}; GET /v1/openapi.json lists all paths"
                )
            case 405:
                allowed = ", ".join(sorted(getattr(error, "allowed_methods", ())))
                return ApiError(405, "MethodNotAllowed", f"{request.path} allows {allowed}, not {request.method}")
            case 413:
                limit = self._settings.max_body_bytes
                return ApiError(413, "TooLarge", f"the body is larger than {limit} bytes; split it")
            case status:
                return ApiError(status, error.reason.replace(" ", ""), error.text or error.reason)


def error_response(error: ApiError) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    # ``message`` stands at the top too: a client that knows nothing of the rest can still show the sentence.
    body: dict[str, Any] = {**error.body(), "message": error.message}
    return web.Response(
        status=error.status, text=json.dumps(body) + "\n", content_type="application/json", headers=headers
    )
