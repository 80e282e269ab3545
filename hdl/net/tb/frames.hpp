// Frames for benches: built and parsed in plain C++, independently of the RTL.
#pragma once

#include "clocked.hpp"

namespace frames {

using bench::Bytes;

inline void put16(Bytes &b, size_t at, uint32_t v) {
    b[at] = static_cast<uint8_t>(v >> 8);
    b[at + 1] = static_cast<uint8_t>(v);
}
inline void put32(Bytes &b, size_t at, uint32_t v) {
    put16(b, at, v >> 16);
    put16(b, at + 2, v & 0xffff);
}
inline uint32_t get16(const Bytes &b, size_t at) { return static_cast<uint32_t>(b[at]) << 8 | b[at + 1]; }
inline uint32_t get32(const Bytes &b, size_t at) { return get16(b, at) << 16 | get16(b, at + 2); }

// The Internet checksum (RFC 1071) of b[from, to), with `start` added.
inline uint16_t checksum(const Bytes &b, size_t from, size_t to, uint32_t start = 0) {
    for (size_t i = from; i < to; i++) start += (i - from) % 2 ? b[i] : static_cast<uint32_t>(b[i]) << 8;
    while (start >> 16) start = (start & 0xffff) + (start >> 16);
    return static_cast<uint16_t>(~start);
}

constexpr uint64_t kOwnMac = 0x020000000002, kPeerMac = 0x020000000077;
constexpr uint32_t kOwnIp = 0x0a630002, kPeerIp = 0x0a630001;

inline Bytes ethernet(uint64_t to, uint16_t type) {
    Bytes f(14);
    for (size_t i = 0; i < 6; i++) {
        f[i] = static_cast<uint8_t>(to >> (40 - 8 * i));
        f[6 + i] = static_cast<uint8_t>(kPeerMac >> (40 - 8 * i));
    }
    put16(f, 12, type);
    return f;
}

inline Bytes ipv4(uint8_t protocol, const Bytes &payload) {
    Bytes f = ethernet(kOwnMac, 0x0800);
    f.resize(34);
    f[14] = 0x45;
    put16(f, 16, static_cast<uint32_t>(20 + payload.size()));
    put16(f, 20, 0x4000);
    f[22] = 64;
    f[23] = protocol;
    put32(f, 26, kPeerIp);
    put32(f, 30, kOwnIp);
    put16(f, 24, checksum(f, 14, 34));
    f.insert(f.end(), payload.begin(), payload.end());
    return f;
}

inline Bytes tcp(uint32_t seq, uint32_t ack, uint8_t flags, const Bytes &options, const Bytes &payload) {
    Bytes t(20);
    put16(t, 0, 40000);
    put16(t, 2, 80);
    put32(t, 4, seq);
    put32(t, 8, ack);
    t[12] = static_cast<uint8_t>((5 + options.size() / 4) << 4);
    t[13] = flags;
    put16(t, 14, 1000);
    t.insert(t.end(), options.begin(), options.end());
    t.insert(t.end(), payload.begin(), payload.end());
    Bytes f = ipv4(6, t);
    put16(f, 50, checksum(f, 26, f.size(), 6 + static_cast<uint32_t>(t.size())));
    return f;
}

inline Bytes icmp_echo(const Bytes &payload) {
    Bytes t{8, 0, 0, 0, 1, 2, 3, 4};
    t.insert(t.end(), payload.begin(), payload.end());
    put16(t, 2, checksum(t, 0, t.size()));
    return ipv4(1, t);
}

inline Bytes arp_request() {
    Bytes f = ethernet(0xffffffffffff, 0x0806);
    f.resize(42);
    put16(f, 14, 1);
    put16(f, 16, 0x0800);
    f[18] = 6, f[19] = 4;
    put16(f, 20, 1);
    for (size_t i = 0; i < 6; i++) f[22 + i] = f[6 + i];
    put32(f, 28, kPeerIp);
    put32(f, 38, kOwnIp);
    return f;
}

}  // namespace frames
