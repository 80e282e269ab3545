"""nginx' configuration for these benchmarks."""

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
    """A configuration with one worker, persistent connections and these servers (the inside of
    `http`), with DIRECTORY replaced. `user`: the user of the worker when started by root, by
    default nobody."""
    return ((f"user {user};" if user else "") + HEAD + servers + "}\n").replace(
        "DIRECTORY", str(directory)
    )
