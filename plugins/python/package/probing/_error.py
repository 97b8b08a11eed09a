# SPDX-License-Identifier: Apache-2.0
"""The errors of asking a process; users catch them as client.Error and client.Gone."""


class Error(RuntimeError):
    """What the process said instead of an answer.

    code: "EINVAL", "EACCES", ...; hint: what to do, or ""; status: the command's, when it gave one.
    """

    def __init__(self, message, code="ERROR", status=None, hint=""):
        super().__init__("%s; %s" % (message, hint) if hint else message)
        self.code, self.status, self.hint = code, status, hint


class Gone(Error, ConnectionError):
    """The process has ended or has let go of probing, or never answered."""

    def __init__(self, message, hint=""):
        super().__init__(message, "ECONNRESET", hint=hint)


Error.__module__ = Gone.__module__ = __package__ + ".client"
