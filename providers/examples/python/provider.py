"""What every Python provider needs: failures, wrappers that turn exceptions into them, and HTTP.

An exception that leaves an export is a trap: it counts against the provider, and its message is lost. So
each call is `guarded`, and what it raises becomes a failure of the contract. Every request has explicit
time-outs: without them an answer is waited for longer than the call lasts.
"""

import functools
import json
import traceback
from dataclasses import dataclass

from componentize_py_types import Err, Ok
from wit_world.imports import host_log, model, outgoing_handler, poll, streams, types

MARGIN_MS = 250
MAX_BODY = 8 << 20

METHODS = {"GET": types.Method_Get, "POST": types.Method_Post, "DELETE": types.Method_Delete}
SCHEMES = {"http": types.Scheme_Http, "https": types.Scheme_Https}


def failure(reason, message, *, status=None, code=None, retry_after_ms=None):
    """To be raised."""
    return Err(model.Failure(reason, message[:1000], retry_after_ms, status, code, []))


def invalid(pointer, message):
    return failure(model.Reason_Invalid(pointer), message)


def guarded(call):
    """No exception leaves this function but a failure of the contract."""

    @functools.wraps(call)
    def wrapper(*args):
        try:
            return call(*args)
        except Err as error:
            if isinstance(error.value, model.Failure):
                raise
            reported = repr(error.value)
        except Exception as error:  # noqa: BLE001 - this is the boundary
            reported = f"{type(error).__name__}: {error}"
            host_log.emit(host_log.Level.ERROR, traceback.format_exc(), [])
        raise failure(model.Reason_Other("exception"), f"{call.__name__}: {reported}")

    return wrapper


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: object

    @property
    def code(self):
        """The upstream's own code, if it gave one."""
        found = self.body.get("error") if isinstance(self.body, dict) else None
        return found if isinstance(found, str) else None


def from_status(what, answer):
    """By HTTP status alone; look at the upstream's own code first."""
    reasons = {
        401: model.Reason_Denied,
        403: model.Reason_Denied,
        404: model.Reason_Missing,
        409: model.Reason_Busy,
        429: model.Reason_Throttled,
    }
    fallback = model.Reason_Transient if answer.status >= 500 else model.Reason_Permanent
    seconds = answer.headers.get("retry-after", "")
    retry_after_ms = int(seconds) * 1000 if seconds.isdigit() and int(seconds) < 4_000_000 else None
    reason = reasons.get(answer.status, fallback)()
    message = f"{what}: HTTP {answer.status}"
    return failure(reason, message, status=answer.status, code=answer.code, retry_after_ms=retry_after_ms)


def send_json(ctx, what, method, origin, path, body=None):
    """One request; its answer as JSON. A failure if there is no answer, or none that is JSON."""
    try:
        status, headers, data = _exchange(ctx, method, origin, path, body)
    except Err as error:
        if isinstance(error.value, model.Failure):
            raise
        kind = error.value
        if isinstance(kind, types.ErrorCode_HttpRequestDenied):
            raise failure(model.Reason_Denied(), f"{what}: the operator does not allow this request") from None
        raise failure(model.Reason_Transient(), f"{what}: {type(kind).__name__}") from None
    try:
        return Answer(status, headers, json.loads(data) if data else None)
    except ValueError:
        raise failure(model.Reason_Transient(), f"{what}: the answer is not JSON", status=status) from None


def _exchange(ctx, method, origin, path, body):
    timeout = max(ctx.timeout_ms - MARGIN_MS, 1) * 1_000_000
    data = b"" if body is None else json.dumps(body).encode()
    headers = [("accept", b"application/json"), ("x-request-id", ctx.request_id.encode())]
    if data:
        headers += [("content-type", b"application/json"), ("content-length", str(len(data)).encode())]
    request = types.OutgoingRequest(types.Fields.from_list(headers))
    scheme, authority = origin.split("://", 1)
    request.set_method(METHODS[method]())
    request.set_scheme(SCHEMES[scheme]())
    request.set_authority(authority)
    request.set_path_with_query(path)
    options = types.RequestOptions()
    options.set_connect_timeout(timeout)
    options.set_first_byte_timeout(timeout)
    options.set_between_bytes_timeout(timeout)
    outgoing = request.body()
    future = outgoing_handler.handle(request, options)
    _write(outgoing, data)
    while (got := future.get()) is None:
        with future.subscribe() as ready:
            poll.poll([ready])
    # Two layers: was it taken before, and did it work.
    for _ in range(2):
        if isinstance(got, Err):
            raise got
        got = got.value if isinstance(got, Ok) else got
    return _read(got)


def _write(outgoing, data):
    if data:
        with outgoing.write() as stream:
            for start in range(0, len(data), 4096):
                stream.blocking_write_and_flush(data[start : start + 4096])
    types.OutgoingBody.finish(outgoing, None)


def _read(response):
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers().entries()}
    data = bytearray()
    with response.consume() as body, body.stream() as stream:
        while len(data) <= MAX_BODY:
            try:
                data += stream.blocking_read(65536)
            except Err as error:
                if isinstance(error.value, streams.StreamError_Closed):
                    break
                raise failure(model.Reason_Transient(), "the answer broke off") from None
    return response.status(), headers, bytes(data)
