kernel void echo(global const uchar *body, global uchar *answer) { answer[get_global_id(0)] = body[get_global_id(0)]; }
