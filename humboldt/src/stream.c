/*
 * Streams: bytes in order, without message boundaries. A stream consists of messages with the tag
 * of its channel, each at most a packet of a board, and an empty one at its end. It works with
 * every transport of messages, and blocks where they would. Kernels on boards use this file, too.
 */
#include "humboldt.h"

#include <string.h>

/* A synthesized kernel needs the length of a copy at compile time. */
static inline void take(unsigned char *to, const unsigned char *from, size_t bytes)
{
#ifdef HUM_SYNTHESIZED
    for (size_t i = 0; i < bytes; i++) to[i] = from[i];
#else
    memcpy(to, from, bytes);
#endif
}

void HUM_Stream_open(HUM_Stream *stream, int peer, int channel, HUM_Comm comm)
{
    stream->peer = peer;
    stream->channel = channel;
    stream->comm = comm;
    stream->at = stream->there = 0;
    stream->ended = 0;
}

int HUM_Push(HUM_Stream *stream, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    int error = HUM_SUCCESS;
    for (size_t done = 0; done < bytes && error == HUM_SUCCESS;) {
        size_t piece = bytes - done < HUM_STREAM_BYTES ? bytes - done : HUM_STREAM_BYTES;
        error = HUM_Send(from + done, (int)piece, HUM_BYTE, stream->peer, stream->channel, stream->comm);
        done += piece;
    }
    return error;
}

int HUM_Stream_end(HUM_Stream *stream)
{
    return HUM_Send(stream->piece, 0, HUM_BYTE, stream->peer, stream->channel, stream->comm);
}

int HUM_Pull(HUM_Stream *stream, void *data, size_t room, size_t *bytes)
{
    *bytes = 0;
    if (room == 0) return HUM_SUCCESS;
    if (stream->at == stream->there && !stream->ended) {
        HUM_Status status;
        int error = HUM_Recv(stream->piece, HUM_STREAM_BYTES, HUM_BYTE, stream->peer, stream->channel, stream->comm, &status);
        if (error != HUM_SUCCESS) return error;
        stream->at = 0;
        stream->there = (int)status.bytes;
        stream->ended = stream->there == 0;
    }
    size_t left = (size_t)(stream->there - stream->at);
    if (left < room) room = left;
    take(data, stream->piece + stream->at, room);
    stream->at += (int)room;
    *bytes = room;
    return HUM_SUCCESS;
}
