"""The way out of a sandbox, served on the host's side.

A sandbox has no interface but its own loopback, on which every address is routed. Names are
answered by us with addresses of that loopback; whoever connects to one meets a socket that we
accept on. So any program works, proxy-aware or not, and nothing leaves but what we connect.

    proxy.py     accepts, judges, connects, records      dns.py         names, only public addresses
    http.py      requests: host checked, headers added   authority.py   certificates for that
    attempts.py  what no listener meets                  trust.py       which certificates count
    channel_relay.py   the same over the agent's channel, where the host holds no socket inside
    protocol_detection.py   TLS, HTTP or else, and the name in a ClientHello
"""
