"""Picture files of every kind, made by Pillow where it can and by hand where it can't, and files that only
look like pictures."""
import importlib.util
import io
import os
import struct
import zlib

import numpy
from PIL import Image

WIDTH, HEIGHT = 61, 43


def pixels(width=WIDTH, height=HEIGHT, seed=0):
    """Slopes, a fine pattern and a patch of noise: [height, width, 3], uint8."""
    y, x = numpy.mgrid[0:height, 0:width]
    array = numpy.stack([x * 255 // width, y * 255 // height, x * y % 256], -1).astype(numpy.uint8)
    patch = array[height // 4:height // 2, width // 4:width // 2]
    patch[:] = numpy.random.default_rng(seed).integers(0, 256, patch.shape)
    return array


def photos():
    """Two photographs, 640 x 427."""
    folder = importlib.util.find_spec("sklearn").submodule_search_locations[0]
    return [os.path.join(folder, "datasets", "images", name) for name in ("china.jpg", "flower.jpg")]


# ---- PNG by hand: what Pillow does not write -----------------------------------------------------

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, kind, rows, interlaced=0, between=b""):
    """rows: bytes of each scanline, without the byte for the filter."""
    return b"".join([
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)),
        between,
        chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))),
        chunk(b"IEND", b"")])


def png_of(array, kind, **options):
    """array: [height, width] or [height, width, channels], uint8 or uint16."""
    big = array.astype(array.dtype.newbyteorder(">"))
    return png(array.shape[1], array.shape[0], array.dtype.itemsize * 8, kind,
               [row.tobytes() for row in big], **options)


def png_packed(depth):
    """Grey of 2 or 4 bits: pixel (x, y) is x + y."""
    rows = []
    for y in range(HEIGHT):
        bits = "".join(f"{(x + y) % (1 << depth):0{depth}b}" for x in range(WIDTH))
        bits += "0" * (-len(bits) % 8)
        rows.append(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    return png(WIDTH, HEIGHT, depth, 0, rows)


def png_interlaced(array):
    rows = []
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
                         (1, 0, 2, 2), (0, 1, 1, 2)):
        rows += [row.tobytes() for row in array[y::dy, x::dx]]
    return png(array.shape[1], array.shape[0], 8, 2, rows, interlaced=1)


# ---- GIF by hand: frames that are not the whole picture ------------------------------------------

GREYS = numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 3).tobytes()  # taken for no palette


def gif(screen, place, transparent=None, own_colors=False, greys=False):
    """A 30 x 20 frame at `place` of a screen of that size."""
    rng = numpy.random.default_rng(1)
    colors = rng.integers(0, 256, 768, dtype=numpy.uint8).tobytes()
    frame = Image.frombytes("P", (30, 20), rng.integers(0, 256, 600, dtype=numpy.uint8).tobytes())
    frame.putpalette(colors)
    colors = GREYS if greys else colors
    made = io.BytesIO()
    frame.save(made, "GIF")
    codes = made.getvalue()[made.getvalue().rindex(struct.pack("<BHHHH", 0x2c, 0, 0, 30, 20)) + 10:]
    control = b"" if transparent is None else b"\x21\xf9\x04\x01\0\0" + bytes([transparent]) + b"\0"
    return b"".join([
        b"GIF89a", struct.pack("<HHBBB", *screen, 0x70 if own_colors else 0xf7, 9, 0),
        b"" if own_colors else colors, control,
        struct.pack("<BHHHHB", 0x2c, *place, 30, 20, 0x87 if own_colors else 0),
        colors if own_colors else b"", codes])


# ---- everything ----------------------------------------------------------------------------------

def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned():
    """EXIF that says: show it on its side."""
    exif = Image.Exif()
    exif[0x112] = 6
    return exif


def without_adobe(jpeg):
    """A CMYK file that does not say whose CMYK it is."""
    at = jpeg.index(b"\xff\xee")
    return jpeg[:at] + jpeg[at + 2 + struct.unpack_from(">H", jpeg, at + 2)[0]:]


def jpegs(rgb, grey):
    cmyk = saved(rgb.convert("CMYK"), "JPEG", quality=95)
    return {
        "420.jpg": saved(rgb, "JPEG", quality=90),
        "444.jpg": saved(rgb, "JPEG", subsampling=0),
        "422.jpg": saved(rgb, "JPEG", subsampling=1),
        "progressive.jpg": saved(rgb, "JPEG", progressive=True),
        "restart.jpg": saved(rgb, "JPEG", restart_marker_blocks=2),
        "grey.jpg": saved(grey, "JPEG"),
        "cmyk.jpg": cmyk,
        "cmyk-plain.jpg": without_adobe(cmyk),
        "cmyk-black.jpg": saved(Image.merge("CMYK", (*rgb.split(), grey.rotate(180))), "JPEG"),
        "notes.jpg": saved(rgb, "JPEG", exif=turned(), comment=b"a comment", icc_profile=b"x" * 200),
    }


def pngs(rgb, rgba, grey, few):
    deep = pixels().astype(numpy.uint16) * 256 + pixels()[::-1]
    alpha = numpy.full((HEIGHT, WIDTH, 1), 30000, numpy.uint16)
    return {
        "rgb.png": saved(rgb, "PNG"),
        "rgba.png": saved(rgba, "PNG"),
        "grey.png": saved(grey, "PNG"),
        "grey-alpha.png": saved(rgba.convert("LA"), "PNG"),
        "palette.png": saved(few, "PNG"),
        "palette4.png": saved(rgb.quantize(16), "PNG", bits=4),
        "palette1.png": saved(rgb.quantize(2), "PNG", bits=1),
        "palette-transparent.png": saved(few, "PNG", transparency=3),
        "rgb-transparent.png": saved(rgb, "PNG", transparency=(10, 10, 10)),
        "grey-transparent.png": saved(grey, "PNG", transparency=10),
        "1.png": saved(rgb.convert("1"), "PNG"),
        "2.png": png_packed(2),
        "4.png": png_packed(4),
        "interlaced.png": png_interlaced(pixels()),
        "rgb16.png": png_of(deep, 2),
        "rgba16.png": png_of(numpy.dstack([deep, alpha]), 6),
        "grey-alpha16.png": png_of(numpy.dstack([deep[..., :1], alpha]), 4),
        "animated.png": saved(rgb, "PNG", save_all=True, append_images=[rgb.rotate(180)]),
    }


def webps(rgb, rgba):
    after = {"save_all": True, "duration": 100}
    return {
        "lossy.webp": saved(rgb, "WEBP", quality=80),
        "lossless.webp": saved(rgb, "WEBP", lossless=True),
        "alpha.webp": saved(rgba, "WEBP", lossless=True),
        "lossy-alpha.webp": saved(rgba, "WEBP", quality=80),
        "notes.webp": saved(rgb, "WEBP", quality=80, exif=turned(), xmp=b"<x/>",
                            icc_profile=b"x" * 201),
        "animated.webp": saved(rgb, "WEBP", lossless=True, append_images=[rgb.rotate(180)], **after),
        "animated-alpha.webp": saved(rgba, "WEBP", lossless=True,
                                     append_images=[rgba.rotate(180)], **after),
    }


def gifs(rgb, grey, few):
    screen = (WIDTH, HEIGHT)
    return {
        "palette.gif": saved(few, "GIF"),
        "grey.gif": saved(grey, "GIF"),
        "transparent.gif": saved(few, "GIF", transparency=5),
        "interlaced.gif": saved(few, "GIF", interlace=1),
        "animated.gif": saved(rgb, "GIF", save_all=True, append_images=[rgb.rotate(180), rgb]),
        "frame.gif": gif(screen, (10, 5)),
        "frame-transparent.gif": gif(screen, (10, 5), transparent=7),
        "frame-own.gif": gif(screen, (3, 3), transparent=9, own_colors=True),
        "frame-outside.gif": gif((20, 10), (10, 5)),
        "no-screen.gif": gif((0, 0), (0, 0)),
        "greys.gif": gif(screen, (10, 5), greys=True),
        "greys-own.gif": gif(screen, (10, 5), transparent=90, own_colors=True, greys=True),
        "two.gif": saved(grey.convert("1"), "GIF"),
    }


def every_kind():
    """name → bytes."""
    rgb = Image.fromarray(pixels())
    grey, few, rgba = rgb.convert("L"), rgb.quantize(256), rgb.copy()
    rgba.putalpha(Image.fromarray(pixels()[..., 1]))
    return jpegs(rgb, grey) | pngs(rgb, rgba, grey, few) | webps(rgb, rgba) | gifs(rgb, grey, few)


# ---- not pictures, or not honest ones ------------------------------------------------------------

def heads(width, height):
    """Files that announce such a size and have next to nothing: name → bytes."""
    small = saved(Image.new("RGB", (1, 1)), "JPEG")
    frame = small.index(b"\xff\xc0")
    size = struct.pack(">HH", height, width)
    return {
        "head.png": png(width, height, 8, 2, []),
        "head.jpg": small[:frame + 5] + size + small[frame + 9:],
        "head.gif": b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0)
                    + struct.pack("<BHHHHB", 0x2c, 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\0;",
        "head.webp": b"RIFF\x28\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0"
                     + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
                     + b"VP8L\x0a\0\0\0\x2f" + b"\0" * 9,
    }


def other_kinds():
    """What no decoder here may take, whatever its library could: name → bytes."""
    rgb = Image.fromarray(pixels())
    jpeg = saved(rgb, "JPEG")
    return {
        "empty": b"",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        "pdf": b"%PDF-1.4\n" + jpeg,
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n",
        "bmp": saved(rgb, "BMP"),
        "tiff": saved(rgb, "TIFF"),
        "ico": saved(rgb, "ICO"),
        "ppm": saved(rgb, "PPM"),
        "avif": saved(rgb, "AVIF"),
        "jpeg2000": saved(rgb, "JPEG2000"),
        "heif": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 100,
        "vips": b"\xb6\xa6\xf2\x08" + b"\0" * 100,
        "csv": b"1,2,3\n4,5,6\n",
        "a byte in front": b"\0" + jpeg,
        "html": b"<html><img src='data:image/png;base64,",
        "noise": numpy.random.default_rng(2).integers(0, 256, 5000, numpy.uint8).tobytes(),
    }
