//! `[cluster]`: several coordinators of one database.

use super::media::MediaConfig;
use super::serve::ServeConfig;
use super::setting::settings;
use super::value::WebAddress;

settings! {
    /// Several coordinators of one database, behind any load balancer. One coordinator leads and has the queue. The others pass requests and worker connections on to the leader, and take its place within seconds.
    pub struct ClusterConfig = "cluster" {
        /// URL at which the other coordinators reach this one: "http://10.0.0.2:7010". Set it on every coordinator of a cluster, which needs a PostgreSQL database, the same serve.secret everywhere and a bucket in [serve.media].
        address: Option<WebAddress>; unset "a coordinator that does not lead answers nothing",
    }
}

impl ClusterConfig {
    /// `http://HOST:PORT` without a slash at its end.
    pub fn address(&self) -> Option<String> {
        let url = &self.address.as_ref()?.0;
        Some(url.as_str().trim_end_matches('/').to_owned())
    }

    /// The setting that prevents these coordinators from being one cluster.
    pub(super) fn problem(&self, serve: &ServeConfig, media: &MediaConfig) -> Option<String> {
        let url = &self.address.as_ref()?.0;
        let database = serve.database.as_ref();
        let is_server = database.is_some_and(|database| {
            let database = database.expose();
            database.starts_with("postgres://") || database.starts_with("postgresql://")
        });
        let is_plain = matches!(url.path(), "" | "/") && url.query().is_none();
        let problem = if !is_server {
            "cluster.address needs a PostgreSQL server in serve.database: an SQLite file has one coordinator"
        } else if media.bucket().is_none() {
            "cluster.address needs serve.media.bucket: other coordinators cannot read a media folder of this machine"
        } else if serve.secret.is_none() {
            "cluster.address needs serve.secret: every coordinator of the cluster must have the same server secret"
        } else if url.scheme() != "http" {
            "cluster.address must begin with http://: coordinators reach each other without TLS, in a private network or a tunnel"
        } else if serve.tls().is_some() || serve.self_signed {
            "cluster.address and TLS are both set: coordinators reach each other without TLS, so let the load balancer have the certificate"
        } else if !is_plain || !url.username().is_empty() {
            "cluster.address must be http://HOST:PORT, without a path or a user"
        } else {
            return None;
        };
        Some(problem.to_owned())
    }
}
