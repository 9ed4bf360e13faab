import geopandas
import pytest
import shapely

from gpsuq import GPSError
from gpsuq.poisson.regions import read_regions
from gpsuq.spatial import as_window

PLOTS = geopandas.GeoDataFrame(
    geometry=[shapely.box(0, 0, 500, 100), shapely.box(500, 0, 700, 100)], index=["west", "east"], crs="EPSG:32633"
)


def test_every_row_of_geopandas_is_a_region():
    shapes, names = read_regions(PLOTS, as_window(PLOTS))
    assert [shape.area for shape in shapes] == [50000.0, 20000.0]
    assert list(names) == ["west", "east"]


@pytest.mark.parametrize("regions", [PLOTS.set_crs("EPSG:32632", allow_override=True), [as_window(PLOTS)]])
def test_regions_must_share_the_crs_of_the_window(regions):
    window = as_window(PLOTS.set_crs("EPSG:32631", allow_override=True))
    with pytest.raises(GPSError, match="EPSG:32631"):
        read_regions(regions, window)
