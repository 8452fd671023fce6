"""The way out of a sandbox, served on the host's side.

A sandbox has no interface but its own loopback, on which every address is routed. Names are
answered by us with addresses of that loopback; whoever connects to one meets a socket that we
accept on. So any program works, proxy-aware or not, and nothing leaves but what we connect.

    proxy.py       accepts, judges, connects, records     names.py      DNS questions and answers
    addresses.py   resolve once, refuse private           tls.py        the name in a ClientHello
    http.py        requests: host checked, headers added  authority.py  certificates for that
"""
