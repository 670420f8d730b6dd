//! Certificates from files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use muster_protocol::job::UnixMillis;

use super::expiry::expiry;
use super::peer::Peer;

/// Accepts TLS connections. Clones share the certificate, which may be replaced: open connections keep the one that
/// they began with.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<TlsAcceptor>>);

/// A certificate chain and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("reading {} as PEM failed: {error}", .path.display())]
    Unreadable { path: PathBuf, error: pem::Error },
    #[error("{} contains no certificate", .path.display())]
    Empty { path: PathBuf },
    #[error("the certificate and its key cannot be used together: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// A chain and its key, and when the first certificate of the chain expires.
    pub fn read(files: &TlsFiles) -> Result<(Self, Option<UnixMillis>), TlsError> {
        let TlsFiles { certificate, key } = files;
        let chain = read(certificate, |path| {
            CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()
        })?;
        let Some(first) = chain.first() else {
            return Err(TlsError::Empty {
                path: certificate.to_owned(),
            });
        };
        let expiry = expiry(first);
        let key = read(key, |path| PrivateKeyDer::from_pem_file(path))?;
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok((Self(Arc::new(RwLock::new(acceptor))), expiry))
    }

    /// Switches to the other's certificate.
    pub fn replace(&self, other: &Self) {
        let acceptor = other.acceptor();
        *self.0.write() = acceptor;
    }

    pub async fn shake_hands(&self, stream: Peer) -> io::Result<TlsStream<Peer>> {
        let acceptor = self.acceptor();
        acceptor.accept(stream).await
    }

    fn acceptor(&self) -> TlsAcceptor {
        let acceptor = self.0.read();
        acceptor.clone()
    }

    /// A number that identifies the certificate in use.
    #[cfg(test)]
    pub fn identity(&self) -> usize {
        Arc::as_ptr(self.acceptor().config()) as usize
    }
}

fn read<T>(path: &Path, parse: impl FnOnce(&Path) -> Result<T, pem::Error>) -> Result<T, TlsError> {
    parse(path).map_err(|error| TlsError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(hidden)")
    }
}
