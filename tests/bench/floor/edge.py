"""Prototype edge: node link (Int32 frames, protobuf) -> SSE subscribers. argv: strategy writer parser reactor"""

import os
import signal
import struct
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
strategy, writer, parser, rkind = sys.argv[1:5]
if rkind == "uvloop":
    import uvloop
    from twisted.internet import asyncioreactor

    asyncioreactor.install(uvloop.new_event_loop())
else:
    from twisted.internet import epollreactor

    epollreactor.install()
import gc

import ev_pb2 as E
import orjson
from twisted.internet import protocol, reactor
from twisted.protocols.basic import Int32StringReceiver
from twisted.web import resource, server

if os.environ.get("GCFREEZE"):
    gc.freeze()
PRE = b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{"content":'
POST = b'},"finish_reason":null}]}\n\n'
subs = {}  # run_id -> list[Sub]
stats = [0, 0, 0, 0, 0]  # events, flushes, nodata
dirty = []
sched = [False]
dumps = orjson.dumps
perf = time.perf_counter


class Sub:
    __slots__ = ("req", "pend", "tr", "last", "timer")

    def __init__(self, req):
        self.req = req
        self.pend = []
        self.tr = None
        self.last = 0.0
        self.timer = None


def wr_req(s, data):
    s.req.write(data)


def wr_direct(s, data):
    tr = s.tr
    data = b"%x\r\n%b\r\n" % (len(data), data)
    if tr.dataBuffer or tr._tempDataBuffer:
        tr.write(data)
        return
    try:
        n = tr.socket.send(data)
    except BlockingIOError:
        n = 0
    if n < len(data):
        tr.write(data[n:])


def wr_trans(s, data):
    s.tr.write(b"%x\r\n%b\r\n" % (len(data), data))


wr = {"req": wr_req, "direct": wr_direct, "trans": wr_trans}[writer]


def flush(s):
    p = s.pend
    if not p:
        return
    d = p[0] if len(p) == 1 else b"".join(p)
    p.clear()
    stats[1] += 1
    wr(s, d)


def flush_all():
    sched[0] = False
    d = dirty[:]
    dirty.clear()
    for s in d:
        flush(s)


def flush_timer(s):
    s.timer = None
    s.last = perf()
    flush(s)


def emit(run_id, text):
    ss = subs.get(run_id)
    stats[0] += 1
    if ss is None:
        stats[2] += 1
        return
    chunk = PRE + dumps(text) + POST
    for s in ss:
        if strategy == "each":
            stats[1] += 1
            wr(s, chunk)
            continue
        p = s.pend
        if not p:
            dirty.append(s)
        p.append(chunk)
    if strategy == "turn" and not sched[0]:
        sched[0] = True
        reactor.callLater(0, flush_all)
    elif strategy == "timer2" and not sched[0]:
        sched[0] = True
        reactor.callLater(0.002, flush_all)


def end_of_read():
    if strategy == "read":
        flush_all()
    elif strategy == "lead2":
        now = perf()
        d = dirty[:]
        dirty.clear()
        for s in d:
            if now - s.last >= 0.002:
                s.last = now
                flush(s)
            elif s.timer is None:
                s.timer = reactor.callLater(0.002 - (now - s.last), flush_timer, s)


HIST = os.environ.get("HIST", "")
hwritten = [0]
if HIST:
    import sqlite3
    import threading

    HD = f"histe.{os.getpid()}"
    os.makedirs(HD)
    hc = sqlite3.connect(HD + "/h.db", isolation_level=None, check_same_thread=False)
    hc.execute("pragma journal_mode=WAL")
    hc.execute("pragma synchronous=NORMAL")
    hc.execute("create table ev(run blob, seq int, ts int, kind int, body text)")
    hc.execute("create table b(run blob, seq0 int, n int, data blob)")
    hq = []
    hmap = {}
    hev = threading.Event()

    def wrows(items):
        hc.execute("begin")
        hc.executemany("insert into ev values(?,?,?,1,?)", items)
        hc.execute("commit")
        hwritten[0] += len(items)

    def wblobs(m):
        hc.execute("begin")
        hc.executemany("insert into b values(?,?,?,?)", [(r, 0, len(l), b"".join(l)) for r, l in m.items()])
        hc.execute("commit")
        hwritten[0] += sum(map(len, m.values()))

    def wone(m):
        l = [x for v in m.values() for x in v]
        hc.execute("insert into b values(?,?,?,?)", (b"", 0, len(l), b"".join(l)))
        hwritten[0] += len(l)

    def hthread():
        while True:
            hev.wait()
            hev.clear()
            while hq:
                if HIST == "rows-thread":
                    it = hq[:]
                    del hq[: len(it)]
                    wrows(it)
                else:
                    m = hq.pop(0)
                    wblobs(m)

    if HIST.endswith("thread"):
        threading.Thread(target=hthread, daemon=True).start()

    def hflush():
        global hmap
        if HIST == "rows-thread":
            hev.set()
        elif hmap:
            m = hmap
            hmap = {}
            if HIST == "blob-thread":
                hq.append(m)
                hev.set()
            elif HIST == "blob-inline":
                wblobs(m)
            elif HIST == "segment-inline":
                wone(m)
        reactor.callLater(0.1, hflush)

    reactor.callLater(0.1, hflush)
FS = E.Envelope.FromString


def frame(b):
    m = FS(b)
    w = m.WhichOneof("msg")
    if w == "event":
        e = m.event
        if e.WhichOneof("body") == "delta":
            emit(e.run_id, e.delta.text)
        if HIST:
            if HIST == "rows-thread":
                hq.append((e.run_id, e.seq, e.ts_us, e.delta.text))
            else:
                r = e.run_id
                l = hmap.get(r)
                if l is None:
                    hmap[r] = [b]
                else:
                    l.append(b)
    elif w == "batchf":
        bt = m.batchf
        rid = bt.run_id
        if HIST:
            if HIST == "rows-thread":
                q = bt.first_seq
                hq.extend([(rid, q + i, bt.base_us + e.dt_us, e.text) for i, e in enumerate(bt.events)])
            else:
                l = hmap.get(rid)
                if l is None:
                    hmap[rid] = [b] * 1
                else:
                    l.append(b)
        for e in bt.events:
            if e.WhichOneof("body") == "text":
                emit(rid, e.text)
    elif w == "raw":  # mixed batch: each entry an Event
        for x in m.raw.events:
            e = E.Event.FromString(x)
            if e.WhichOneof("body") == "delta":
                emit(e.run_id, e.delta.text)


U = struct.Struct(">I").unpack_from


class Hand(protocol.Protocol):
    tail = b""

    def dataReceived(self, data):
        if self.tail:
            data = self.tail + data
        o = 0
        end = len(data)
        while end - o >= 4:
            (ln,) = U(data, o)
            e = o + 4 + ln
            if e > end:
                break
            frame(data[o + 4 : e])
            o = e
        self.tail = data[o:]
        end_of_read()


class I32(Int32StringReceiver):
    MAX_LENGTH = 1 << 24

    def stringReceived(self, b):
        frame(b)

    def dataReceived(self, data):
        Int32StringReceiver.dataReceived(self, data)
        end_of_read()


class SSE(resource.Resource):
    isLeaf = True

    def render_GET(self, req):
        i = int(req.path.rsplit(b"/", 1)[1])
        rid = struct.pack(">I", i) + b"\0" * 12
        req.setHeader(b"content-type", b"text/event-stream")
        req.write(b": hi\n\n")
        s = Sub(req)
        s.tr = req.channel.transport
        while hasattr(s.tr, "wrappedProtocol") or hasattr(s.tr, "transport"):
            t = getattr(s.tr, "transport", None)
            if t is None:
                break
            s.tr = t
        req.channel.setTimeout(None) if hasattr(req.channel, "setTimeout") else None
        try:
            s.tr.setTcpNoDelay(True)
        except Exception:
            pass
        subs.setdefault(rid, []).append(s)
        req.notifyFinish().addBoth(lambda _: subs.get(rid) and s in subs[rid] and subs[rid].remove(s))
        return server.NOT_DONE_YET


site = server.Site(SSE())
site.displayTracebacks = False
np = reactor.listenTCP(0, protocol.Factory.forProtocol(Hand if parser == "hand" else I32), interface="127.0.0.1")
hp = reactor.listenTCP(0, site, backlog=2000, interface="127.0.0.1")


def report(*a):
    print(time.process_time_ns(), stats[0], stats[1], stats[2], sum(map(len, subs.values())), hwritten[0], flush=True)


signal.signal(signal.SIGUSR1, report)
print(np.getHost().port, hp.getHost().port, flush=True)
reactor.run()
