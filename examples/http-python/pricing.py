#!/usr/bin/env python3
"""Prices as a Cleat entity: one file, nothing but the standard library.

    CLEAT_KEY=s3cret PORT=8000 python3 pricing.py
"""

import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = os.environ.get("CLEAT_KEY", "").encode()
TOLERANCE = 300  # seconds that clocks may differ


def is_signed(header, body):
    """Whether `t=<unix seconds>,v1=<hex>` is a signature of this body that is not too old."""
    parts = dict(part.split("=", 1) for part in (header or "").split(",") if "=" in part)
    signed = hmac.new(KEY, parts.get("t", "").encode() + b"." + body, hashlib.sha256).hexdigest()
    fresh = parts.get("t", "").isdigit() and abs(time.time() - int(parts["t"])) < TOLERANCE
    return fresh and hmac.compare_digest(signed, parts.get("v1", ""))


def set_price(input, state):
    """Changes the state, and tells the audit about it."""
    if input["price"] <= 0:
        raise Refused("InvalidPrice", "a price is more than nothing")
    history = state["history"] + [input["price"]]
    audit = {"entity": "audit", "id": "prices", "method": "note", "input": input["price"]}
    return {"output": {"was": state["price"]}, "state": {"price": input["price"], "history": history}, "send": [audit]}


def get(input, state):
    """Only looks."""
    return {"output": state["price"]}


METHODS = {"setPrice": set_price, "get": get}


class Refused(Exception):
    """A no that is not worth another attempt."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if KEY and not is_signed(self.headers.get("cleat-signature"), body):
            return self.answer(401, {"reason": "NotSigned", "detail": "the signature is missing, wrong or too old"})
        method = METHODS.get(self.headers.get("cleat-method"))
        if method is None:
            return self.answer(404, {"reason": "UnknownMethod", "detail": "there is no such method here"})
        call = json.loads(body)
        try:
            self.answer(200, method(call["input"], call.get("state")))
        except Refused as refused:
            reason, detail = refused.args
            self.answer(409, {"reason": reason, "detail": detail})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json" if status == 200 else "application/problem+json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8000"))), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()
