//! TLS to coordinators: the machine's certificate authorities, or one pinned certificate. Explains failed handshakes
//! with a remedy.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    self, CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

/// The SHA-256 digest of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Trusts the certificate authorities of this machine.
pub fn native_tls() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

/// Trusts exactly one certificate, identified by its digest; names, dates and issuer do not matter.
pub fn pinned_tls(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, String> {
    let pin = Arc::new(Pin {
        fingerprint,
        provider: provider(),
    });
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(pin);
    Ok(Arc::new(builder.with_no_client_auth()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

#[derive(Debug)]
struct Pin {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let mismatch = Mismatch {
            found,
            pinned: self.fingerprint,
        };
        let error = CertificateError::Other(OtherError(Arc::new(mismatch)));
        Err(rustls::Error::InvalidCertificate(error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The coordinator showed another certificate than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the certificate {found} does not match the pinned one, {pinned}: if the operator has changed it, set certificate_sha256 to the new fingerprint; otherwise the connection may be intercepted"
)]
struct Mismatch {
    found: Fingerprint,
    pinned: Fingerprint,
}

/// The cause of a TLS error, and the remedy; `None` for other errors.
pub fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(words(error));
        }
        // `source` of an I/O error skips its inner error.
        let inside = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

fn words(error: &rustls::Error) -> String {
    let certificate = match error {
        rustls::Error::InvalidMessage(_) => {
            return "the server does not use TLS: use ws:// or http:// in url, and for another machine also set insecure = true".to_owned();
        }
        rustls::Error::InvalidCertificate(certificate) => certificate,
        other => {
            return format!(
                "TLS failed ({other}): check the port in url, or ask the coordinator's operator"
            );
        }
    };
    match certificate {
        CertificateError::UnknownIssuer => "the certificate is not signed by a trusted authority: pin it with certificate_sha256, or install the authority's certificate".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired: the operator must renew it, or this machine's clock is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet: check this machine's clock".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another host name: use the certificate's name in url, or pin it with certificate_sha256".to_owned()
        }
        CertificateError::Other(OtherError(other)) => other.to_string(),
        other => format!("the certificate is not valid ({other}): the operator must replace it"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio_rustls::rustls::{CertificateError, Error, InvalidMessage};

    use super::{Fingerprint, explain};

    fn explained(error: Error) -> String {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        explain(&error).unwrap()
    }

    #[test]
    fn an_answer_without_tls_names_the_schemes_to_use() {
        let plain = explained(Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(plain.contains("server does not use TLS"), "{plain}");
        assert!(plain.contains("ws:// or http://"), "{plain}");
        assert!(!plain.contains("InvalidContentType"), "{plain}");
    }

    #[test]
    fn a_bad_certificate_comes_with_its_remedy() {
        let certificate = |error| explained(Error::InvalidCertificate(error));
        assert!(certificate(CertificateError::UnknownIssuer).contains("certificate_sha256"));
        assert!(certificate(CertificateError::Expired).contains("renew"));
        assert!(certificate(CertificateError::NotValidYet).contains("clock"));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(explain(&refused), None);
    }

    #[test]
    fn a_fingerprint_is_written_in_hexadecimal() {
        let text = Fingerprint::of(b"").to_string();
        assert!(text.starts_with("e3b0c442") && text.len() == 64, "{text}");
    }
}
