// The environment of http_fetch: a stack that opens one connection, rings, and a server that
// replies as set by the test, in pieces of any size at any time. One step() per cycle.
#pragma once

#include <map>
#include <string>

#include "clocked.hpp"
#include "ring_words.hpp"

namespace bench {

// The server's reply to one request.
struct Answer {
    Bytes bytes;             // including the head
    bool closes = true;      // a FIN follows
    bool resets = false;     // the connection is reset after it
    uint8_t connect = 0;     // connect_result_t; not 0: the connection cannot be opened
};

template <class Dut>
class StoreServer {
public:
    static constexpr int kLatency = 4;
    static constexpr uint32_t kRing = 1u << 21;
    unsigned may = 70;       // percentage of cycles in which a port is free
    unsigned pieces = 300;   // maximum bytes of a segment
    RingWords words{kLatency};
    uint64_t connected = 0, released = 0;
    std::vector<std::string> requests;
    // Called with "" for the result of opening.
    std::function<Answer(const std::string &request)> answers;

    StoreServer(Dut &dut, Random &random) : dut_(dut), random_(random) {}

    // Inputs set before the DUT settles.
    void drive() {
        dut_.connect_done = dut_.open = dut_.rcv_notify = dut_.notify_dead = 0;
        if (waits_ && --waits_ == 0) connect();
        if (up_ && answered_ && notified_ < at_ + answer_.bytes.size() + answer_.closes && random_.percent(10)) notify();
        if (up_ && ((report_finish_ && random_.percent(5)) || (answer_.resets && answered_ && notified_ >= at_ + answer_.bytes.size()))) die();
        dut_.rx_may = dut_.tx_may = dut_.app_ready = dut_.release_ready = 0;
    }

    // After the DUT has settled for the first time: inputs that may depend on its requests.
    void grant() {
        reads_ = dut_.rx_wants && random_.percent(may);
        dut_.rx_may = reads_;
        dut_.tx_may = random_.percent(may);
        dut_.app_ready = random_.percent(may);
        dut_.release_ready = random_.percent(may);
    }

    // After the DUT has settled again: events at the clock's edge.
    void observe() {
        check(!dut_.rx_read || read_next_, "reads although it may not");
        read_next_ = reads_;
        if (dut_.connect_valid && !up_ && !waits_ && !opened_) waits_ = 1 + random_.below(40);
        if (dut_.connect_done) opened_ = false;
        if (dut_.tx_write) {
            check(up_ && dut_.tx_may, "writes although it may not");
            for (unsigned i = 0; i < 8; i++)
                if (dut_.tx_write_keep >> i & 1) sent_[dut_.tx_write_address * 8u + i] = static_cast<char>(dut_.tx_write_data >> (8 * i));
        }
        if (dut_.app_valid && dut_.app_ready) accept_report();
        if (dut_.rx_read) {
            uint64_t word = 0;
            // It may continue to read in a session that has ended.
            bool ours = up_ && dut_.rx_read_address >> 18 == session_;
            for (unsigned i = 0; i < 8; i++) {
                uint32_t k = (dut_.rx_read_address * 8u + i - at_) & (kRing - 1);
                bool there = ours && k < answer_.bytes.size() && k < notified_ - at_;
                word |= static_cast<uint64_t>(there ? answer_.bytes[k] : random_.next() & 255) << (8 * i);
            }
            words.read(word, dut_.rx_read_note, random_);
        }
        if (dut_.release_valid && dut_.release_ready) {
            check(up_ && dead_ && dut_.session == session_, "releases a session that has not ended");
            up_ = false;
            released++;
        }
    }

    // After the edge.
    void follow() {
        const RingWords::Word came = words.next();
        dut_.rx_word_valid = came.valid, dut_.rx_word_note = came.note;
        dut_.rx_word_data = came.data;
    }

private:
    void connect() {
        answer_ = answers("");
        dut_.connect_done = 1;
        dut_.connect_result = answer_.connect;
        opened_ = true;
        if (answer_.connect) return;
        connected++;
        up_ = true;
        session_ = static_cast<uint8_t>(random_.below(16));
        at_ = random_.next() & 0xffffffff;
        una_ = static_cast<uint32_t>(random_.next());
        notified_ = at_;
        read_to_ = static_cast<uint32_t>(at_);
        answered_ = report_finish_ = dead_ = false;
        sent_.clear();
        dut_.open = 1;
        dut_.open_at = session_;
        dut_.open_next = static_cast<uint32_t>(at_);
        dut_.open_una = una_;
    }

    void notify() {
        uint64_t end = at_ + answer_.bytes.size();
        uint64_t room = read_to_ + kRing - static_cast<uint32_t>(notified_);
        notified_ += std::min<uint64_t>({1 + random_.below(pieces), end - notified_, static_cast<uint32_t>(room)});
        if (notified_ == end && answer_.closes && random_.percent(50)) notified_++;
        dut_.rcv_notify = 1;
        dut_.rcv_at = session_;
        dut_.rcv_next = static_cast<uint32_t>(notified_);
        dut_.rcv_ended = notified_ > end;
    }

    void die() {
        if (dead_) return;
        dead_ = true;
        dut_.notify_dead = 1;
        dut_.notify_at = session_;
    }

    void accept_report() {
        check(up_ && dut_.session == session_, "speaks of another session");
        read_to_ = dut_.app_read_to;
        check(static_cast<uint32_t>(notified_ - read_to_) <= kRing, "has read what has not come");
        if (dut_.app_finish) report_finish_ = true;
        if (answered_) return;
        std::string request;
        for (uint32_t k = una_; k != dut_.app_written_to; k++)
            request += sent_.at(static_cast<uint32_t>(session_) * kRing + k % kRing);
        if (request.size() < 4 || request.substr(request.size() - 4) != "\r\n\r\n") return;
        requests.push_back(request);
        answer_ = answers(request);
        answered_ = true;
    }

    Dut &dut_;
    Random &random_;
    Answer answer_;
    std::map<uint32_t, char> sent_;
    bool up_ = false, answered_ = false, report_finish_ = false, dead_ = false, opened_ = false, reads_ = false, read_next_ = false;
    unsigned waits_ = 0;
    uint8_t session_ = 0;
    uint64_t at_ = 0, notified_ = 0;  // the reply's first byte; the position after the last
                                      // received byte
    uint32_t una_ = 0, read_to_ = 0;
};

inline Answer file(const Bytes &body, const std::string &head) {
    Answer answer{text(head)};
    answer.bytes.insert(answer.bytes.end(), body.begin(), body.end());
    return answer;
}

inline Answer file(const Bytes &body) {
    return file(body, "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
}

// Words of 32 bits, the first character lowest, padded with zeros.
template <class Port>
void put(Port &port, const std::string &word) {
    for (size_t i = 0; i < sizeof(port) / 4; i++) port[i] = 0;
    for (size_t i = 0; i < word.size(); i++) port[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(word[i])) << (8 * (i % 4));
}

}  // namespace bench
