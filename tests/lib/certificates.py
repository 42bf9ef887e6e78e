"""Certificates for tests, made on the spot: an authority, what it signs, and what is wrong in a way that
is asked for."""
import datetime
import ipaddress
import os

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def name_of(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def pem_of(key, password=None):
    how = (serialization.BestAvailableEncryption(password) if password
           else serialization.NoEncryption())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


class Identity:
    """A certificate and its key, in memory; `write` puts them into files."""

    def __init__(self, name, issuer=None, days=(-1, 2), authority=False, hosts=("localhost",), rsa_bits=0):
        self.name = name
        self.issuer = issuer
        self.key = (rsa.generate_private_key(65537, rsa_bits) if rsa_bits
                    else ec.generate_private_key(ec.SECP256R1()))
        signer = issuer or self
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (x509.CertificateBuilder().subject_name(name_of(name))
                   .issuer_name(name_of(signer.name)).public_key(self.key.public_key())
                   .serial_number(x509.random_serial_number())
                   .not_valid_before(now + days[0] * DAY).not_valid_after(now + days[1] * DAY)
                   .add_extension(x509.BasicConstraints(authority, None), True)
                   # What a strict reader of RFC 5280 (Python's default from 3.13 on) asks for:
                   .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False)
                   .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(
                       signer.key.public_key()), False))
        if authority:
            builder = builder.add_extension(x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False,
                encipher_only=False, decipher_only=False), True)
        if not authority:
            builder = builder.add_extension(x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
                + [x509.DNSName(host) for host in hosts]), False)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def serial(self):
        return self.certificate.serial_number

    def cert_pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def chain_pem(self):
        """Its own, and those between it and the root."""
        pem, issuer = self.cert_pem(), self.issuer
        while issuer is not None and issuer.issuer is not None:
            pem, issuer = pem + issuer.cert_pem(), issuer.issuer
        return pem

    def write(self, folder, password=None):
        """Returns: the files of the chain and the key."""
        os.makedirs(folder, exist_ok=True)
        cert, key = os.path.join(folder, "tls.crt"), os.path.join(folder, "tls.key")
        with open(cert, "wb") as file:
            file.write(self.chain_pem())
        with open(key, "wb") as file:
            file.write(pem_of(self.key, password))
        return cert, key

    def write_cert(self, path):
        with open(path, "wb") as file:
            file.write(self.cert_pem())
        return str(path)
