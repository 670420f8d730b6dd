"""A server that speaks S3 for tests: moto behind a door that checks every signature with Amazon's own library.

usage: bucket.py FILE ID SECRET   writes its URL to FILE when the bucket `muster` is there
"""
import datetime
import hashlib
import hmac
import io
import sys
from pathlib import Path
from urllib.parse import parse_qsl

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import Client
from werkzeug.wrappers import Response

BUCKET = "muster"
SKEW = datetime.timedelta(minutes=15)


def main(file, key, secret):
    service = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, Door(service, Credentials(key, secret)), threaded=True)
    url = f"http://127.0.0.1:{server.server_port}"
    made = Client(service).put(f"/{BUCKET}", base_url=url)
    assert made.status_code == 200, made.get_data(as_text=True)
    part = Path(file).with_suffix(".part")
    part.write_text(url + "\n")
    part.rename(file)
    server.serve_forever()


class Refused(Exception):
    """Said with 403 and the code of S3."""


class Door:
    def __init__(self, service, credentials):
        self.service, self.credentials = service, credentials

    def __call__(self, environ, start_response):
        # All of it, also of what is refused: a server waits for what is left, while its client waits for the answer.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        try:
            self.check(environ)
        except Refused as refused:
            body = f"<Error><Code>{refused}</Code></Error>"
            return Response(body, 403, content_type="application/xml")(environ, start_response)
        return self.service(environ, start_response)

    def check(self, environ):
        path, _, query = environ["RAW_URI"].partition("?")
        claim = link_claim(query) or header_claim(environ)
        check_time(claim)
        key, _, scope = claim["Credential"].partition("/")
        if key != self.credentials.access_key:
            raise Refused("InvalidAccessKeyId")
        headers = {name: header(environ, name) for name in claim["SignedHeaders"].split(";")}
        if "host" not in headers:
            raise Refused("AccessDenied")
        unsigned = "&".join(part for part in query.split("&") if not part.startswith("X-Amz-Signature="))
        request = AWSRequest(environ["REQUEST_METHOD"], f"http://{environ['HTTP_HOST']}{path}?{unsigned}", headers)
        request.context["timestamp"] = claim["Date"]
        signer = claim["signer"](self.credentials, "s3", scope.split("/")[1])
        text = signer.string_to_sign(request, signer.canonical_request(request))
        same = hmac.compare_digest(signer.signature(text, request), claim["Signature"])
        if not same or scope != signer.credential_scope(request):
            raise Refused("SignatureDoesNotMatch")


def link_claim(query):
    """What a presigned link says of itself; nothing if it is none."""
    named = {name.removeprefix("X-Amz-"): value for name, value in parse_qsl(query) if name.startswith("X-Amz-")}
    return {**named, "signer": S3SigV4QueryAuth} if "Signature" in named else None


def header_claim(environ):
    scheme, _, rest = header(environ, "authorization").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        raise Refused("AccessDenied")
    check_payload(environ)
    named = dict(part.strip().split("=", 1) for part in rest.split(","))
    return {**named, "Date": header(environ, "x-amz-date"), "signer": S3SigV4Auth}


def check_time(claim):
    made = datetime.datetime.strptime(claim["Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    age = datetime.datetime.now(datetime.timezone.utc) - made
    lives = datetime.timedelta(seconds=int(claim["Expires"])) if "Expires" in claim else SKEW
    if not -SKEW <= age <= lives:
        raise Refused("AccessDenied" if "Expires" in claim else "RequestTimeTooSkewed")


def check_payload(environ):
    """That the body is the one that was signed."""
    said, body = header(environ, "x-amz-content-sha256"), environ["wsgi.input"].getvalue()
    if said not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
        raise Refused("XAmzContentSHA256Mismatch")


def header(environ, name):
    name = name.upper().replace("-", "_")
    return environ.get(name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}", "")


if __name__ == "__main__":
    main(*sys.argv[1:])
