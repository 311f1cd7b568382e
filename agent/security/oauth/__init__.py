"""Bearer tokens: JSON Web Tokens of an issuer, whose keys an agent reads and keeps."""
