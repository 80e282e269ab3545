// The stack as a host that opens connections: its requests, its replies, and its time limits. The
// bench plays the peer, frame by frame; a tick occurs every kTick cycles.
#include <algorithm>
#include <deque>
#include <map>

#include "frames.hpp"
#include "ring_words.hpp"

using namespace bench;
using namespace frames;

namespace {

constexpr int kLatency = 4;
constexpr uint64_t kTick = 160;
constexpr unsigned kRingBits = 14;
constexpr uint8_t kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16;
enum Result { Ok, Refused, TimedOut, Unreachable, Full };

struct Got {  // a segment from the board
    uint16_t from = 0, to = 0;
    uint32_t seq = 0, ack = 0, window = 0;
    uint8_t flags = 0;
    Bytes options, payload;
    uint64_t ms = 0;
};

struct Stack {
    Clocked dut;
    std::deque<Bytes> in;
    size_t at = 0;
    int gap = 0;
    Bytes frame;
    std::deque<Bytes> arps;
    std::deque<Got> got;
    RingWords words{kLatency};
    unsigned hurried = 100;  // percentage of cycles in which the rings' memory accepts
    std::map<uint32_t, uint64_t> rx_ring, tx_ring;  // words by address
    bool done = false, answers_arp = true, opened = false;
    Result result = Ok;
    uint32_t session = 0, next = 0, una = 0, read_to = 0, written_to = 0;
    bool dead = false;
    uint64_t ms = 0;
    uint32_t requested_ip = 0;
    std::vector<Bytes> echoes;         // replies to echo requests
    std::vector<uint32_t> accepted;    // sessions that peers have opened
    std::deque<uint32_t> to_release;   // and ended ones, which are released at once
    bool releases = false;

    Stack() {
        dut->own_mac = kOwnMac, dut->own_ip = kOwnIp, dut->listen_port = 80, dut->secret = dut.random.next();
        dut->netmask = 0, dut->gateway = 0, dut->reserve = 0;
        dut->rx_valid = 0, dut->tx_ready = 1, dut->tick = 0;
        dut->app_valid = 0, dut->release_valid = 0, dut->connect_valid = 0, dut->working = 0, dut->mid_request = 0;
        dut->udp_port = 0, dut->udp_rx_ready = 0, dut->udp_tx_valid = 0;
        dut->tx_word_valid = 0, dut->rx_write_ready = 1, dut->tx_read_ready = 1;
        dut.reset();
        if (dut.random.percent(50)) hurried = 60, words.jitter = 40;
        run(64);
    }

    void step() {
        dut->rx_valid = 0;
        dut->rx_write_ready = dut.random.percent(hurried);
        dut->tx_read_ready = dut.random.percent(hurried);
        if (gap > 0) gap--;
        else if (!in.empty()) {
            const Bytes &f = in.front();
            uint64_t data = 0;
            unsigned n = 0;
            for (; n < 8 && at + n < f.size(); n++) data |= static_cast<uint64_t>(f[at + n]) << (8 * n);
            at += n;
            const bool last = at >= f.size();
            const uint64_t keep = (1u << n) - 1;
            const uint64_t low = data << 9 | keep << 1 | last;
            dut->rx[0] = static_cast<uint32_t>(low), dut->rx[1] = static_cast<uint32_t>(low >> 32);
            dut->rx[2] = static_cast<uint32_t>(data >> 55);
            dut->rx_valid = 1;
            if (last) in.pop_front(), at = 0, gap = 3;
        }
        dut->tick = dut.cycles % kTick == 0;
        ms += dut->tick;
        if (releases) {
            dut->release_valid = !to_release.empty();
            if (!to_release.empty()) dut->release_at = to_release.front(), to_release.pop_front();
        }
        dut.settle();
        if (dut->tx_valid && dut->tx_ready) {
            const uint64_t low = dut->tx[0] | static_cast<uint64_t>(dut->tx[1]) << 32;
            const uint64_t data = low >> 9 | static_cast<uint64_t>(dut->tx[2]) << 55;
            for (int i = 0; i < 8; i++)
                if (low >> (1 + i) & 1) frame.push_back(static_cast<uint8_t>(data >> (8 * i)));
            if (low & 1) take(frame), frame.clear();
        }
        if (dut->rx_write) {
            uint64_t &w = rx_ring[dut->rx_write_address];
            for (int i = 0; i < 8; i++)
                if (dut->rx_write_keep >> i & 1) w = (w & ~(0xffull << (8 * i))) | (dut->rx_write_data & (0xffull << (8 * i)));
        }
        if (dut->open && dut->open_active) opened = true, session = dut->open_at, next = dut->open_next, una = dut->open_una, read_to = next, written_to = una;
        if (dut->rcv_notify && opened && dut->rcv_at == session) next = dut->rcv_next;
        if (dut->notify && dut->notify_at == session && opened) una = dut->notify_una, dead |= dut->notify_dead;
        if (dut->open && !dut->open_active) accepted.push_back(dut->open_at);
        if (dut->notify && dut->notify_dead && releases) to_release.push_back(dut->notify_at);
        if (dut->connect_done) done = true, result = static_cast<Result>(dut->connect_result);
        if (dut->tx_read) words.read(tx_ring[dut->tx_read_address], 0, dut.random);
        dut.rise();
        const RingWords::Word came = words.next();
        dut->tx_word_valid = came.valid, dut->tx_word_data = came.data;
        if (done) dut->connect_valid = 0;
    }
    void run(uint64_t cycles) {
        for (uint64_t i = 0; i < cycles; i++) step();
    }
    void run_ms(uint64_t n) { run(n * kTick); }

    void take(const Bytes &f) {
        if (get16(f, 12) == 0x0806) {
            check(f.size() == 42 && get16(f, 14) == 1 && get16(f, 16) == 0x0800 && get16(f, 18) == 0x0604, "an ARP frame is malformed");
            check(get32(f, 28) == kOwnIp && get32(f, 22) == 0x02000000 && get16(f, 26) == 2, "an ARP frame has another sender");
            if (get16(f, 20) != 1) return;
            for (int i = 0; i < 6; i++) check(f[i] == 0xff, "an ARP request is for one host");
            arps.push_back(f);
            requested_ip = get32(f, 38);
            if (answers_arp) in.push_back(arp_reply(requested_ip));
            return;
        }
        check(checksum(f, 14, 34) == 0, "IPv4 checksum");
        if (f[23] == 1) {
            check(f[34] == 0 && checksum(f, 34, f.size()) == 0, "ICMP's type or checksum");
            echoes.push_back(f);
            return;
        }
        check(checksum(f, 26, f.size(), 6 + static_cast<uint32_t>(f.size()) - 34) == 0, "TCP checksum");
        for (size_t i = 0; i < 6; i++) check(f[i] == static_cast<uint8_t>(kPeerMac >> (40 - 8 * i)), "to another hardware address");
        Got g;
        g.from = static_cast<uint16_t>(get16(f, 34)), g.to = static_cast<uint16_t>(get16(f, 36));
        g.seq = get32(f, 38), g.ack = get32(f, 42), g.flags = f[47], g.window = get16(f, 48), g.ms = ms;
        const size_t head = 34 + (f[46] >> 4) * 4u;
        g.options.assign(f.begin() + 54, f.begin() + static_cast<long>(head));
        g.payload.assign(f.begin() + static_cast<long>(head), f.end());
        got.push_back(g);
    }
    static Bytes arp_reply(uint32_t ip) {
        Bytes f = ethernet(kOwnMac, 0x0806);
        f.resize(60);
        put16(f, 14, 1), put16(f, 16, 0x0800), f[18] = 6, f[19] = 4, put16(f, 20, 2);
        for (size_t i = 0; i < 6; i++) f[22 + i] = f[6 + i], f[32 + i] = static_cast<uint8_t>(kOwnMac >> (40 - 8 * i));
        put32(f, 28, ip), put32(f, 38, kOwnIp);
        return f;
    }
    void send(uint16_t port, uint16_t own_port, uint32_t seq, uint32_t ack, uint8_t flags, const Bytes &options = {}, const Bytes &payload = {}) {
        Bytes f = tcp(seq, ack, flags, options, payload);
        put16(f, 34, port), put16(f, 36, own_port), put16(f, 48, 60000), put16(f, 50, 0);
        put16(f, 50, checksum(f, 26, f.size(), 6 + static_cast<uint32_t>(f.size()) - 34));
        if (f.size() < 60) f.resize(60);
        in.push_back(f);
    }
    void connect(uint16_t port, uint32_t ip = kPeerIp) {
        dut->connect_valid = 1, dut->connect_ip = ip, dut->connect_port = port;
        done = opened = dead = false;
    }
    Got segment(uint64_t most_ms = 20) {
        for (uint64_t end = ms + most_ms; got.empty() && ms < end;) step();
        check(!got.empty(), "no segment comes");
        Got g = got.front();
        got.pop_front();
        return g;
    }
    void until_done(uint64_t most_ms) {
        for (uint64_t end = ms + most_ms; !done && ms < end;) step();
        check(done, "the attempt does not end");
        run(4);
    }
    // Opens a connection to a peer that accepts it; returns its own port.
    uint16_t open_to(uint16_t port) {
        connect(port);
        const Got syn = segment();
        send(port, syn.from, 100, syn.seq + 1, kSyn | kAck, {2, 4, 5, 0xb4});
        until_done(5);
        check(result == Ok, "a connection is not opened");
        segment();
        return syn.from;
    }
    // The application reports its positions.
    void say(bool finish = false) {
        dut->app_valid = 1, dut->app_at = session, dut->app_read_to = read_to, dut->app_written_to = written_to, dut->app_finish = finish;
        step();
        dut->app_valid = 0;
    }
    void write(const Bytes &b) {
        for (uint8_t byte : b) {
            const uint32_t place = written_to++ % (1u << kRingBits);
            uint64_t &w = tx_ring[session << (kRingBits - 3) | place >> 3];
            w = (w & ~(0xffull << (8 * (place % 8)))) | static_cast<uint64_t>(byte) << (8 * (place % 8));
        }
    }
    Bytes read() {
        Bytes b;
        for (; read_to != next; read_to++) {
            const uint32_t place = read_to % (1u << kRingBits);
            b.push_back(static_cast<uint8_t>(rx_ring[session << (kRingBits - 3) | place >> 3] >> (8 * (place % 8))));
        }
        return b;
    }
    void release() {
        dut->release_valid = 1, dut->release_at = session;
        step();
        dut->release_valid = 0;
    }
};

const Bytes kMss1460{2, 4, 5, 0xb4};

}  // namespace

TEST(opens_a_session_and_exchanges_data) {
    Stack s;
    s.connect(8080);
    const Got syn = s.segment();
    check(s.arps.size() == 1 && s.requested_ip == kPeerIp, "the address is requested once");
    check(syn.flags == kSyn && syn.to == 8080 && syn.from >= 49152 && syn.payload.empty(), "a SYN");
    check(syn.options.size() == 8 && get32(syn.options, 0) == 0x020405b4 && get32(syn.options, 4) == 0x01030300, "with its options");
    s.send(8080, syn.from, 7000, syn.seq + 1, kSyn | kAck, kMss1460);
    s.until_done(5);
    check(s.result == Ok && s.opened && s.next == 7001 && s.una == syn.seq + 1, "open");
    const Got ack = s.segment();
    check(ack.flags == kAck && ack.seq == syn.seq + 1 && ack.ack == 7001, "the SYN is acknowledged");
    s.write(text("GET / HTTP/1.1\r\n\r\n"));
    s.say();
    const Got request = s.segment();
    check(request.seq == syn.seq + 1 && request.ack == 7001, "the request's place");
    expect(request.payload, text("GET / HTTP/1.1\r\n\r\n"), "the request");
    s.send(8080, syn.from, 7001, request.seq + 18, kAck | kPsh, {}, text("HTTP/1.1 200 OK\r\n\r\nhello"));
    s.run_ms(10);
    expect(s.read(), text("HTTP/1.1 200 OK\r\n\r\nhello"), "the answer");
    check(s.una == request.seq + 18, "acknowledged");
    // The peer closes, then the board does.
    s.send(8080, syn.from, 7025, request.seq + 18, kAck | kFin);
    s.run_ms(2);
    s.read_to = s.next;
    s.say(true);
    s.got.clear();
    s.run_ms(2);
    check(!s.got.empty() && (s.got.back().flags & kFin) && s.got.back().ack == 7026, "the board's FIN");
    s.send(8080, syn.from, 7026, s.got.back().seq + 1, kAck);
    s.run_ms(2);
    check(s.dead, "over");
    s.release();
    s.run_ms(2);
    // Later segments belong to no session.
    s.got.clear();
    s.send(8080, syn.from, 7026, request.seq + 19, kAck);
    check(s.segment().flags & kRst, "a late segment is refused");
}

TEST(ports_and_numbers_differ) {
    Stack s;
    std::map<uint16_t, uint32_t> seen;
    for (int i = 0; i < 12; i++) {
        s.connect(443);
        const Got syn = s.segment();
        check(syn.from >= 49152 && !seen.count(syn.from), "a port of its own");
        for (auto &[port, seq] : seen) check(syn.seq != seq, "a number of its own");
        seen[syn.from] = syn.seq;
        s.send(443, syn.from, 100, syn.seq + 1, kSyn | kAck, kMss1460);
        s.until_done(5);
        check(s.result == Ok, "open");
        s.segment();
    }
    check(s.arps.size() == 1, "the address is known the second time");
}

TEST(refused) {
    Stack s;
    for (int i = 0; i < 40; i++) {  // more often than there are sessions, so that each is reused
        s.connect(81);
        const Got syn = s.segment();
        s.send(81, syn.from, 0, syn.seq + 1, kRst | kAck);
        s.until_done(5);
        check(s.result == Refused && !s.opened, "refused");
    }
}

TEST(times_out) {
    Stack s;
    s.connect(82);
    std::vector<uint64_t> times;
    uint32_t seq = 0;
    s.until_done(17000);
    check(s.result == TimedOut && !s.opened, "timed out");
    check(s.got.size() == 4, std::to_string(s.got.size()) + " SYNs");
    for (auto &g : s.got) {
        check(g.flags == kSyn && (times.empty() || g.seq == seq), "the same SYN");
        seq = g.seq;
        times.push_back(g.ms - s.got.front().ms);
    }
    check(times[1] >= 995 && times[1] <= 1005 && times[2] >= 2990 && times[2] <= 3010 && times[3] >= 6990 && times[3] <= 7010,
          "after 1, 2 and 4 s (RFC 6298): " + std::to_string(times[1]) + ", " + std::to_string(times[2]) + ", " + std::to_string(times[3]));
    check(s.ms - s.got.front().ms >= 14990 && s.ms - s.got.front().ms <= 15020, "given up after 15 s");
    // The address is requested again.
    s.got.clear();
    s.connect(82);
    s.segment();
    check(s.arps.size() == 2, "the address is no longer trusted");
}

TEST(lost_syns_and_answers) {
    Stack s;
    s.connect(83);
    const Got syn = s.segment();
    const Got again = s.segment(1100);
    check(again.seq == syn.seq && again.flags == kSyn, "sent again");
    s.send(83, syn.from, 5, syn.seq + 1, kSyn | kAck, kMss1460);
    s.until_done(5);
    check(s.result == Ok, "open");
    s.segment();
    // The peer has not received the ACK, and repeats its SYN.
    s.send(83, syn.from, 5, syn.seq + 1, kSyn | kAck, kMss1460);
    check(s.segment().ack == 6, "acknowledged again");
}

TEST(unreachable) {
    Stack s;
    s.answers_arp = false;
    s.connect(80, 0x0a6300ee);
    s.until_done(4000);
    check(s.result == Unreachable && s.arps.size() == 3 && s.got.empty(), std::to_string(s.arps.size()) + " requests");
    for (auto &f : s.arps) check(get32(f, 38) == 0x0a6300ee, "for the address");
    // Unsolicited replies are ignored.
    s.in.push_back(Stack::arp_reply(0x0a6300ee));
    s.run_ms(2);
    s.arps.clear();
    s.connect(80, 0x0a6300ee);
    s.run_ms(5);
    check(s.arps.size() == 1, "the address is requested again");
    s.in.push_back(Stack::arp_reply(0x0a6300ef));  // of another
    s.run_ms(5);
    check(s.got.empty(), "another's answer is believed");
    s.in.push_back(Stack::arp_reply(0x0a6300ee));
    check(s.segment().flags == kSyn, "a late answer is taken");
}

TEST(through_a_gateway) {
    Stack s;
    s.dut->netmask = 0xffffff00, s.dut->gateway = kPeerIp;
    s.connect(80, 0x08080808);
    s.segment();
    check(s.requested_ip == kPeerIp, "the gateway's address is requested");
    s.dut->connect_valid = 0;
}

TEST(simultaneous_open) {
    for (bool with_syn_ack : {true, false}) {
        Stack s;
        s.connect(84);
        const Got syn = s.segment();
        s.send(84, syn.from, 900, 0, kSyn, kMss1460);
        const Got both = s.segment();
        check(both.flags == (kSyn | kAck) && both.seq == syn.seq && both.ack == 901, "a SYN that acknowledges");
        check(!s.done, "not open yet");
        // After a loss it is retransmitted.
        const Got again = s.segment(1100);
        check(again.flags == (kSyn | kAck) && again.seq == syn.seq && again.ack == 901, "sent again");
        if (with_syn_ack) s.send(84, syn.from, 900, syn.seq + 1, kSyn | kAck, kMss1460);
        else s.send(84, syn.from, 901, syn.seq + 1, kAck, {}, text("at once"));
        s.until_done(5);
        check(s.result == Ok && s.una == syn.seq + 1, "open");
        const Got ack = s.segment();
        check(ack.ack == 901, "what comes with the opening is to be sent again: " + std::to_string(ack.ack));
        s.send(84, syn.from, 901, syn.seq + 1, kAck, {}, text("at once"));
        s.run_ms(2);
        expect(s.read(), text("at once"), "what comes then");
    }
}

TEST(wrong_replies_do_not_open_a_session) {
    Stack s;
    s.connect(85);
    const Got syn = s.segment();
    // Acknowledges another number: refused (RFC 9293 section 3.10.7.3), and the attempt continues.
    s.send(85, syn.from, 1, syn.seq + 9, kSyn | kAck, kMss1460);
    const Got reset = s.segment();
    check((reset.flags & kRst) && reset.seq == syn.seq + 9, "a reset at the announced position");
    s.send(85, syn.from, 1, syn.seq + 9, kRst | kAck);
    s.send(85, syn.from, 1, 0, kRst);
    s.send(85, syn.from, 1, syn.seq + 1, kAck, {}, text("no SYN yet"));
    s.send(85, syn.from, 1, syn.seq + 1, kAck | kFin);
    s.run_ms(10);
    check(!s.done, "still in progress");
    s.send(85, syn.from, 70, syn.seq + 1, kSyn | kAck, kMss1460);
    s.until_done(5);
    check(s.result == Ok && s.next == 71, "open");
}

TEST(full) {
    Stack s;
    for (int i = 0; i < 16; i++) s.open_to(86);
    s.connect(86);
    s.until_done(5);
    check(s.result == Full, "no session is free");
}

// A connection that finds no session evicts one that was idle for a second, but not one for which
// the application works; its idle time starts when the work ends.
TEST(idle_while_the_application_works) {
    Stack s;
    std::vector<uint16_t> ports;
    for (int i = 0; i < 16; i++) ports.push_back(s.open_to(86));
    const uint32_t worked_for = s.session;
    const auto attempt = [&] {
        s.connect(86);
        s.until_done(5);
        check(s.result == Full, "no session is free");
        s.run_ms(70);
    };
    std::map<uint16_t, int> closed;
    const auto look = [&] {
        for (auto &g : s.got) closed[g.from] += (g.flags & (kFin | kRst)) != 0;
        s.got.clear();
        return static_cast<size_t>(
            std::count_if(closed.begin(), closed.end(), [](auto &c) { return c.second != 0; }));
    };
    attempt();
    check(look() == 0, "one is closed that was not idle for a second");
    s.dut->working = 1u << worked_for;
    s.run_ms(1100);
    check(look() == 0, "a session is closed without contention");
    for (size_t i = 0; i < 15; i++) {
        attempt();
        check(look() == i + 1, "an attempt does not close one");
    }
    attempt();
    check(!closed[ports[15]], "one that is worked for is closed");
    s.dut->working = 0;
    s.run_ms(800);
    attempt();
    look();
    check(!closed[ports[15]], "it has no time to take its answer");
    s.run_ms(400);
    attempt();
    look();
    check(closed[ports[15]], "it stays open");
}

// A peer that opens a connection to the board, or tries to.
struct Peer {
    uint16_t port;
    uint32_t seq = 1000, ack = 0;
    void shake(Stack &s) {
        s.got.clear();
        s.send(port, 80, seq, 0, kSyn, kMss1460);
        const Got answer = s.segment();
        check(answer.flags == (kSyn | kAck) && answer.to == port, "a cookie");
        seq++, ack = answer.seq + 1;
        s.send(port, 80, seq, ack, kAck);
        s.run(200);
    }
    void data(Stack &s, size_t n) {
        for (size_t part; n; n -= part) {
            part = std::min<size_t>(n, 1460);
            s.send(port, 80, seq, ack, kAck, {}, Bytes(part, 'x'));
            seq += static_cast<uint32_t>(part);
            s.run(800);
        }
    }
};

// Peers with consecutive ports that open connections; each sends that many bytes, and pauses.
std::vector<Peer> peers_of(Stack &s, uint16_t count, size_t bytes, const std::function<uint64_t(unsigned)> &pause_ms) {
    s.releases = true;
    std::vector<Peer> peers;
    for (uint16_t i = 0; i < count; i++) {
        peers.push_back({static_cast<uint16_t>(5000 + i)});
        peers.back().shake(s);
        peers.back().data(s, bytes);
        s.run_ms(pause_ms(i));
    }
    check(s.accepted.size() == count, "a peer has no session");
    return peers;
}
std::vector<Peer> peers_of(Stack &s, uint16_t count, size_t bytes, uint64_t pause_ms = 0) {
    return peers_of(s, count, bytes, [=](unsigned) { return pause_ms; });
}

// Single bytes within a request do not hold a session: a new connection evicts the session with the
// longest time without progress and is opened at once. A session with progress stays, and so does
// one whose reply is being acknowledged.
TEST(bytes_that_trickle_hold_no_session) {
    Stack s;
    std::vector<Peer> peers = peers_of(s, 16, 20, 70);
    const std::vector<uint32_t> sessions = s.accepted;
    s.dut->mid_request = 0xffff;
    // The first sends 4 KB per turn, and the second gets a reply.
    const auto turn = [&] {
        for (size_t i = 1; i < 16; i++) peers[i].data(s, 1);
        peers[0].data(s, 4096);
        s.session = sessions[0], s.read_to = peers[0].seq, s.written_to = peers[0].ack;
        s.say();
        s.session = sessions[1], s.read_to = peers[1].seq, s.written_to = peers[1].ack;
        s.write(text("an answer"));
        s.say();
        s.run(400);
        peers[1].ack = s.written_to;
        s.send(peers[1].port, 80, peers[1].seq, peers[1].ack, kAck);
        s.run_ms(380);
    };
    for (int i = 0; i < 4; i++) turn();
    for (uint16_t i = 0; i < 5; i++) {
        Peer late{static_cast<uint16_t>(6000 + i)};
        late.shake(s);
        s.run_ms(1);
        std::vector<uint16_t> reset;
        for (auto &g : s.got)
            if (g.flags & kRst) reset.push_back(g.to);
        check(reset.size() == 1 && reset[0] == peers[2 + i].port, "evicted another session than the oldest");
        check(s.accepted.size() == 17u + i && s.accepted.back() == sessions[2 + i],
              "the newcomer is not opened");
        late.data(s, 1);
        // The session now belongs to another peer, which has sent a complete request.
        s.dut->mid_request = s.dut->mid_request & ~(1u << sessions[2 + i]);
        s.run_ms(70);
        late.data(s, 1);
    }
}

// The timeout within a request, while sessions are free.
TEST(requests_have_a_deadline) {
    Stack s;
    std::vector<Peer> peers = peers_of(s, 3, 20);
    // The third is between requests, and each of its bytes is a request.
    s.dut->mid_request = 1u << s.accepted[0] | 1u << s.accepted[1];
    std::map<uint16_t, uint64_t> closed;
    const uint64_t start = s.ms;
    while (s.ms < start + 25000) {
        for (int i = 0; i < 3; i++)
            if (!closed.count(peers[i].port)) {
                peers[i].data(s, i == 1 ? 2048 : 1);
                s.session = s.accepted[i], s.read_to = peers[i].seq, s.written_to = peers[i].ack;
                s.say();
            }
        s.got.clear();
        s.run_ms(3000);
        for (auto &g : s.got)
            if (g.flags & kFin) closed.insert({g.to, g.ms - start});
    }
    check(closed.size() == 1 && closed.count(5000), "not only the session without progress is closed");
    check(closed[5000] > 9900 && closed[5000] < 10500,
          "it is closed after " + std::to_string(closed[5000]) + " ms");
}

// A request that takes longer than 5 s gives way to a new connection, the oldest first, although its
// data makes progress; while sessions are free it may take any time.
TEST(long_requests_give_way) {
    Stack s;
    std::vector<Peer> peers = peers_of(s, 16, 20, [](unsigned i) { return i < 8 ? 130u : 0u; });
    const std::vector<uint32_t> sessions = s.accepted;
    s.dut->mid_request = 0xffff;
    const auto turn = [&] {
        for (size_t i = 0; i < 16; i++)
            if (s.accepted.size() < 17 || i) {
                peers[i].data(s, 4096);
                s.session = sessions[i], s.read_to = peers[i].seq, s.written_to = peers[i].ack;
                s.say();
            }
        s.got.clear();
        s.run_ms(600);
    };
    const uint64_t start = s.ms;
    Peer late{6000};
    while (s.ms < start + 3000) turn();
    late.shake(s);
    check(s.accepted.size() == 16, "a request is cut off too early");
    while (s.ms < start + 7000) turn();
    const auto resets = [&] {
        std::vector<uint16_t> to;
        for (auto &g : s.got)
            if (g.flags & kRst) to.push_back(g.to);
        return to;
    };
    check(resets().empty() && s.dut->count_open == 16, "a request is cut off without contention");
    late.data(s, 1);
    s.run_ms(2);
    const std::vector<uint16_t> to = resets();
    check(to.size() == 1 && to[0] == peers[0].port, "the oldest request does not give way");
    check(s.accepted.size() == 17 && s.accepted.back() == sessions[0], "the newcomer is not opened");
}

// Sessions that are never idle for a second, and never within a request for long: the oldest is to
// close after its reply when a connection waits, and its place is kept for this connection.
TEST(busy_sessions_yield_to_a_connection_that_waits) {
    Stack s;
    std::vector<Peer> peers = peers_of(s, 16, 0, 70);
    const std::vector<uint32_t> sessions = s.accepted;
    // A request of each peer, which is read, and has a reply.
    const auto serve = [&](size_t i, bool finish) {
        peers[i].data(s, 30);
        s.session = sessions[i], s.read_to = peers[i].seq, s.written_to = peers[i].ack;
        s.write(text("an answer"));
        s.say(finish);
        s.run(400);
        peers[i].ack = s.written_to + finish;
        s.send(peers[i].port, 80, peers[i].seq, peers[i].ack, kAck);
        s.run(100);
    };
    const auto turn = [&] {
        for (size_t i = 0; i < 16; i++) serve(i, false);
        s.run_ms(500);
    };
    for (int i = 0; i < 5; i++) turn();
    check(s.dut->yields == 0, "a session yields without contention");
    Peer late{6000}, other{7000};
    late.shake(s);
    check(s.dut->yields == 1u << sessions[0], "the oldest session does not yield");
    other.shake(s);
    late.data(s, 1), late.seq--;
    check(s.dut->yields == 1u << sessions[0], "another session yields at once");
    check(s.accepted.size() == 16 && s.dut->count_open == 16, "a session was evicted");
    turn();
    // The board's reply is the last; then the peer closes, too.
    serve(0, true);
    s.send(peers[0].port, 80, peers[0].seq, peers[0].ack, kFin | kAck);
    s.run_ms(5);
    check(s.dut->count_open == 15, "the session that yields is not released");
    other.data(s, 1), other.seq--;
    check(s.accepted.size() == 16, "its place is not kept");
    late.data(s, 1);
    check(s.accepted.size() == 17 && s.accepted.back() == sessions[0], "the connection that waits is not opened");
    check(s.dut->yields == 0, "the new session yields");
    // The next one waits without coming again: its place is free after 4 s.
    for (size_t i = 1; i < 16; i++) serve(i, false);
    other.data(s, 1), other.seq--;
    check(s.dut->yields == 1u << sessions[1], "the next session does not yield");
    serve(1, true);
    s.send(peers[1].port, 80, peers[1].seq, peers[1].ack, kFin | kAck);
    s.run_ms(5);
    Peer third{8000};
    for (const bool expired : {false, true}) {
        third.shake(s);
        check(s.accepted.size() == 17u + expired, "a place is kept for longer, or not long enough");
        for (int i = 0; i < 6 && !expired; i++) {
            for (size_t k = 2; k < 16; k++) serve(k, false);
            late.data(s, 30);
            s.run_ms(600);
        }
        third.seq = 1000;
    }
}

// Peers that never close after the board has do not hold their sessions.
TEST(half_closed_connections_hold_no_session) {
    Stack s;
    std::vector<Peer> peers = peers_of(s, 16, 0);
    for (int i = 0; i < 16; i++) {
        s.session = s.accepted[i], s.read_to = peers[i].seq, s.written_to = peers[i].ack;
        s.say(true);
        s.run(400);
        s.send(peers[i].port, 80, peers[i].seq, peers[i].ack + 1, kAck);
    }
    s.run_ms(1200);
    for (uint16_t i = 0; i < 3; i++) {
        Peer late{static_cast<uint16_t>(6000 + i)};
        late.shake(s);
        s.run_ms(1);
        check(s.accepted.size() == 17u + i, "newcomer " + std::to_string(i) + " is not opened");
        s.run_ms(70);
    }
}

// A reader that acknowledges single bytes does not hold its session either.
TEST(answers_that_trickle_hold_no_session) {
    Stack s;
    std::vector<Peer> peers = peers_of(s, 16, 20);
    const std::vector<uint32_t> sessions = s.accepted;
    s.session = sessions[7], s.read_to = peers[7].seq, s.written_to = peers[7].ack;
    s.write(Bytes(8000, 'y'));
    s.say();
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 16; k++)
            if (k != 7) peers[k].data(s, 1);  // complete requests
        peers[7].ack++;
        s.send(peers[7].port, 80, peers[7].seq, peers[7].ack, kAck);
        s.run_ms(300);
    }
    Peer late{6000};
    late.shake(s);
    s.run_ms(2);
    // It is closed, not reset, because data of its reply is in flight.
    std::map<uint16_t, int> shut;
    s.run_ms(1800);
    late.data(s, 1);
    for (auto &g : s.got) shut[g.to] += (g.flags & (kFin | kRst)) != 0;
    for (int k = 0; k < 16; k++)
        check(k == 7 ? shut[peers[k].port] : !shut[peers[k].port], "session " + std::to_string(k));
    check(s.accepted.size() == 17, "the newcomer is not opened");
}

// Three duplicate ACKs request a retransmission, but not of a segment that a timeout or other ACKs
// have already caused: the acknowledged position must be beyond the data sent then (RFC 6582
// section 3.2).
TEST(duplicate_acks_after_a_timeout) {
    Stack s;
    constexpr uint32_t kSegment = 1460;
    s.connect(88);
    const Got syn = s.segment();
    const uint32_t first = syn.seq + 1;
    s.send(88, syn.from, 100, first, kSyn | kAck, kMss1460);
    s.until_done(5);
    s.segment();
    const auto write = [&](int segments) {
        s.write(Bytes(static_cast<size_t>(segments) * kSegment, 'x'));
        s.say();
    };
    const auto acks = [&](uint32_t upto, int times) {
        for (int i = 0; i < times; i++) s.send(88, syn.from, 101, upto, kAck);
        s.run_ms(20);
    };
    write(4);
    for (uint32_t i = 0; i < 4; i++) check(s.segment().seq == first + i * kSegment, "four segments");
    check(s.segment(1100).seq == first, "the first again, after a timeout");
    // The other three arrived, and the peer's ACKs were late.
    acks(first, 3);
    check(s.got.empty(), "what a timeout has sent again is sent again by duplicate ACKs");
    // All of it has arrived, more than once. ACKs sent now are late.
    acks(first + 4 * kSegment, 1);
    write(3);
    for (uint32_t i = 4; i < 7; i++) check(s.segment().seq == first + i * kSegment, "three more");
    acks(first + 4 * kSegment, 3);
    check(s.got.empty(), "what may be of segments sent twice is taken for a loss");
    acks(first + 5 * kSegment, 4);
    check(s.segment().seq == first + 5 * kSegment && s.got.empty(), "the first that is lost again, once");
    // The same when that has arrived.
    acks(first + 7 * kSegment, 1);
    write(2);
    for (uint32_t i = 7; i < 9; i++) check(s.segment().seq == first + i * kSegment, "two more");
    acks(first + 7 * kSegment, 3);
    check(s.got.empty(), "what may be of a segment sent twice is taken for a loss");
    acks(first + 8 * kSegment, 4);
    check(s.segment().seq == first + 8 * kSegment && s.got.empty(), "the last again");
}

TEST(an_echo_request_that_waits_behind_an_arp_frame_is_answered) {
    Stack s;
    s.in.push_back(icmp_echo(s.dut.random.bytes(40)));
    s.run(200);
    check(s.echoes.size() == 1, "no answer");
    s.dut->tx_ready = 0;
    s.in.push_back(arp_request());
    s.in.push_back(icmp_echo(s.dut.random.bytes(40)));
    s.run(200);
    s.dut->tx_ready = 1;
    s.run(200);
    check(s.echoes.size() == 2, "the second request is dropped");
}

BENCH_MAIN()

TEST(a_session_is_released_while_another_is_opened) {
    for (int delay = 0; delay < 300; delay++) {
        Stack s;
        s.connect(87);
        const Got first = s.segment();
        s.send(87, first.from, 100, first.seq + 1, kSyn | kAck, kMss1460);
        s.until_done(5);
        s.send(87, first.from, 101, first.seq + 1, kRst);
        s.run_ms(2);
        check(s.dead, "reset");
        s.got.clear();
        const uint32_t over = s.session;
        s.connect(87);
        s.run(static_cast<uint64_t>(delay));
        s.dut->release_valid = 1, s.dut->release_at = over;
        s.step();
        s.dut->release_valid = 0;
        const Got syn = s.segment();
        s.send(87, syn.from, 500, syn.seq + 1, kSyn | kAck, kMss1460);
        s.until_done(5);
        check(s.result == Ok && s.next == 501, "open");
        s.send(87, syn.from, 501, syn.seq + 1, kAck | kPsh, {}, text("hello"));
        s.run_ms(2);
        expect(s.read(), text("hello"), "what it is sent is taken");
    }
}
