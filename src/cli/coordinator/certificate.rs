//! A certificate of this coordinator's own, for networks without a domain name: made once, kept in the data folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tracing::info;

use crate::cli::{Exit, Failure};
use crate::config::Config;
use crate::coordinator::TlsFiles;
use crate::link::Fingerprint;

/// The files of the certificate, made if they do not exist.
pub fn of_this_machine(config: &Config) -> Result<TlsFiles, Failure> {
    let folder = &config.worker.data_dir;
    let files = TlsFiles {
        certificate: folder.join("self-signed.pem"),
        key: folder.join("self-signed.key"),
    };
    if files.certificate.exists() && files.key.exists() {
        return Ok(files);
    }
    let (certificate, key) = make(names(config)).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("creating the self-signed certificate failed: {error}"),
        )
    })?;
    fs::create_dir_all(folder).map_err(|error| Failure::writing(folder, &error))?;
    // The key first: a certificate without its key would count as made.
    keep(&files.key, &key).map_err(|error| Failure::writing(&files.key, &error))?;
    keep(&files.certificate, &certificate)
        .map_err(|error| Failure::writing(&files.certificate, &error))?;
    info!(
        "created a self-signed certificate in {}",
        files.certificate.display()
    );
    Ok(files)
}

/// The digest of the first certificate in a file.
pub fn fingerprint(file: &Path) -> Result<Fingerprint, Failure> {
    let certificate = CertificateDer::from_pem_file(file).map_err(|error| {
        let message = format!("reading {} failed: {error}", file.display());
        Failure::new(Exit::BadConfiguration, message)
    })?;
    Ok(Fingerprint::of(&certificate))
}

/// Names in the certificate. Only browsers check them; workers pin its digest.
fn names(config: &Config) -> Vec<String> {
    let serve = &config.serve;
    let listen = serve.listen.ip();
    let public = serve.public_url.as_ref();
    let public = public.and_then(|url| url.0.host_str().map(str::to_owned));
    let own = (!listen.is_unspecified()).then(|| listen.to_string());
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let machine = machine.map(|name| name.trim().to_owned());
    let machine = machine.filter(|name| !name.is_empty() && name.is_ascii());
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    names.extend(own.into_iter().chain(public).chain(machine));
    names.sort_unstable();
    names.dedup();
    names
}

/// Both in PEM.
fn make(names: Vec<String>) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Muster coordinator");
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Written whole or not at all; others must not read the key.
fn keep(file: &Path, text: &str) -> io::Result<()> {
    let fresh = file.with_extension("new");
    let _ = fs::remove_file(&fresh);
    let mut open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()?;
    fs::rename(&fresh, file)
}

#[cfg(test)]
mod tests {
    use super::{fingerprint, keep, make};

    #[test]
    fn a_new_certificate_has_a_fingerprint_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let prints = ["one.pem", "two.pem"].map(|name| {
            let file = folder.path().join(name);
            let (certificate, _) = make(vec!["localhost".to_owned()]).unwrap();
            keep(&file, &certificate).unwrap();
            fingerprint(&file).unwrap()
        });
        assert_ne!(prints[0], prints[1]);
        assert!(fingerprint(&folder.path().join("none.pem")).is_err());
    }
}
