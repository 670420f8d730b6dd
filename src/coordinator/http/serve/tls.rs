//! Certificates from files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::peer::Peer;

/// Turns a connection into an encrypted one.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} is not a PEM file that can be read: {error}", .path.display())]
    Unreadable { path: PathBuf, error: pem::Error },
    #[error("{} holds no certificate", .path.display())]
    Empty { path: PathBuf },
    #[error("the certificate and its key do not go together: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// A chain and its key, both PEM.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = read(certificate, |path| {
            CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()
        })?;
        if chain.is_empty() {
            return Err(TlsError::Empty {
                path: certificate.to_owned(),
            });
        }
        let key = read(key, |path| PrivateKeyDer::from_pem_file(path))?;
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub async fn shake_hands(&self, stream: Peer) -> io::Result<TlsStream<Peer>> {
        self.0.accept(stream).await
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
