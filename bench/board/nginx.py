"""nginx' configuration for the benches here."""

HEAD = """
daemon off;
worker_processes 1;
pid DIRECTORY/pid;
error_log stderr;
events {}
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path DIRECTORY/body; proxy_temp_path DIRECTORY/proxy; fastcgi_temp_path DIRECTORY/fastcgi;
  uwsgi_temp_path DIRECTORY/uwsgi; scgi_temp_path DIRECTORY/scgi;
"""


def configuration(directory, servers, user=""):
    """One worker, connections that stay, and these servers (the inside of `http`); DIRECTORY stands for the directory in them, too. `user`:
    whom root's worker becomes, if not nobody."""
    return ((f"user {user};" if user else "") + HEAD + servers + "}\n").replace("DIRECTORY", str(directory))
