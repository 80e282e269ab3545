// Packets of the host port's socket (host_protocol.h), with at most one descriptor.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstring>

#include "host_protocol.h"
#include "sealed_file.hpp"

namespace host_socket {

inline ssize_t receive(int from, host_request& request, File& file) {
  iovec part{&request, sizeof request};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t n = recvmsg(from, &message, MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) memcpy(&file.fd, CMSG_DATA(head), sizeof file.fd);
  return n;
}

// `attached`: a descriptor, or -1. False: the receiver is gone, or does not read its replies.
inline bool send(int to, const host_reply& reply, int attached) {
  iovec part{const_cast<host_reply*>(&reply), sizeof reply};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof attached)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (attached >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof attached);
    memcpy(CMSG_DATA(head), &attached, sizeof attached);
  }
  return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof reply;
}

}  // namespace host_socket
